// A queue, a condition variable and a thread. See worker.h.
#include "base/worker.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <system_error>
#include <thread>
#include <utility>

namespace stagewire {

struct Worker::State {
  void run() noexcept;

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<UniqueFunction<void()>> tasks;
  bool stopping = false;
  std::thread thread;
};

Worker::Worker(std::string name) : name_(std::move(name)), state_(std::make_unique<State>()) {}

Worker::~Worker() {
  if (fork_guard_.forked()) {
    // The thread lives in the parent. Destroying the condition variable that it was waiting on there would
    // wait for it here, for ever.
    static_cast<void>(state_.release());
    return;
  }
  stop();
}

void Worker::post(UniqueFunction<void()> task) {
  if (fork_guard_.forked()) return;
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return;
  state_->tasks.push_back(std::move(task));
  if (!state_->thread.joinable()) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      state_->thread = std::thread([state = state_.get()]() noexcept { state->run(); });
      // NOLINTNEXTLINE(bugprone-empty-catch): out of threads; the next post tries again.
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!state_->thread.joinable()) return;
    pthread_setname_np(state_->thread.native_handle(), name_.substr(0, 15).c_str());
  }
  state_->wake.notify_one();
}

void Worker::stop() {
  if (fork_guard_.forked()) return;
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->tasks.clear();
    thread = std::move(state_->thread);
  }
  state_->wake.notify_one();
  if (thread.joinable()) thread.join();
}

void Worker::State::run() noexcept {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return stopping || !tasks.empty(); });
    if (tasks.empty()) return;
    UniqueFunction<void()> task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace stagewire
