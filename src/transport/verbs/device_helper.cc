// See device_helper.h. An abandoned thread shares the state and finds by its turn number that it is no longer
// wanted.
#include "transport/verbs/device_helper.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/units.h"
#include "memory/thread_start.h"

namespace stagewire {

struct DeviceHelper::State : std::enable_shared_from_this<DeviceHelper::State> {
  using Clock = std::chrono::steady_clock;
  struct Task {
    std::string what;
    UniqueFunction<void()> run;
  };

  State(std::string thread_name, std::chrono::milliseconds most, std::shared_ptr<Logger> logger)
      : name(std::move(thread_name)), limit(most), log(std::move(logger)) {}

  void run(std::uint64_t my_turn) {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return turn != my_turn || stopping || !tasks.empty(); });
      if (turn != my_turn) return;
      if (tasks.empty()) break;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      running = task.what;
      began = Clock::now();
      lock.unlock();
      task.run();
      task.run = nullptr;
      lock.lock();
      if (turn != my_turn) return;  // abandoned meanwhile; another thread goes on
      running.clear();
    }
    ended = true;
    idle.notify_all();
  }

  /// Starts the thread if there is none. Under the lock.
  void start() {
    if (thread.joinable()) return;
    auto started = start_thread(name, [self = shared_from_this(), my_turn = turn] { self->run(my_turn); });
    if (started.ok()) thread = std::move(*started);
  }

  /// Lets go of a thread that hangs. Under the lock; returns what it hung in.
  std::string abandon() {
    ++turn;
    thread.detach();
    return std::exchange(running, {});
  }
  bool overdue() const { return !running.empty() && Clock::now() - began > limit; }

  void report(const std::string& what) {
    log->error("the verbs helper has waited " + format_duration(limit) + " for " + what +
               " and goes on without it; see the kernel log for the adapter's driver");
  }

  const std::string name;
  const std::chrono::milliseconds limit;
  const std::shared_ptr<Logger> log;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  std::deque<Task> tasks;
  std::string running;  // empty: none
  Clock::time_point began;
  std::uint64_t turn = 0;
  bool stopping = false;
  bool ended = false;
  std::thread thread;
};

DeviceHelper::DeviceHelper(std::string name, std::chrono::milliseconds limit, std::shared_ptr<Logger> log)
    : state_(std::make_shared<State>(std::move(name), limit, std::move(log))) {}

DeviceHelper::~DeviceHelper() {
  // In a forked child the thread's own reference, which nobody drops there, keeps the state from being
  // destroyed.
  stop();
}

void DeviceHelper::post(std::string what, UniqueFunction<void()> task) {
  if (fork_guard_.forked()) return;
  check();
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return;
  state_->tasks.push_back({std::move(what), std::move(task)});
  state_->start();
  state_->wake.notify_all();
}

void DeviceHelper::check() {
  if (fork_guard_.forked()) return;
  std::string hung;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->overdue()) return;
    hung = state_->abandon();
    state_->start();
  }
  state_->report(hung);
}

void DeviceHelper::stop() {
  if (fork_guard_.forked()) return;
  std::thread thread;
  for (;;) {
    std::string hung;
    {
      std::unique_lock lock(state_->mutex);
      state_->stopping = true;
      if (!state_->thread.joinable()) return;
      state_->wake.notify_all();
      // Wakes now and then for the limit of whatever task runs at the time.
      while (!state_->ended && !state_->overdue()) state_->idle.wait_for(lock, state_->limit / 4);
      if (state_->ended) {
        thread = std::move(state_->thread);
        break;
      }
      hung = state_->abandon();
      state_->start();
    }
    state_->report(hung);
  }
  thread.join();
}

}  // namespace stagewire
