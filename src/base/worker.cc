// A queue, a condition variable and a thread. See worker.h.
#include "base/worker.h"

#include <pthread.h>
#include <signal.h>
#include <utility>

namespace stagewire {

Worker::Worker(std::string name) : name_(std::move(name)) {}

Worker::~Worker() {
  if (fork_guard_.forked()) {
    // The thread lives in the parent; a std::thread must not be destroyed joinable, and cannot be joined
    // here.
    if (thread_.joinable()) thread_.detach();
    return;
  }
  stop();
}

void Worker::post(UniqueFunction<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this]() noexcept { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
  }
  wake_.notify_one();
}

void Worker::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
    thread = std::move(thread_);
  }
  wake_.notify_one();
  if (thread.joinable()) thread.join();
}

void Worker::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    UniqueFunction<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace stagewire
