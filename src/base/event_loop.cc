// The event loop over Asio. One io_context run by one thread; timers are kept in an ordered set of ours over
// a single Asio timer, so that thousands of deadlines cost one kernel timer.
#include "base/event_loop.h"

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace stagewire {

namespace {

// A kernel timer that stands on a cancelled task is moved if what comes next is this much later.
constexpr std::chrono::milliseconds kWorthAMove{100};

// The shared part of a watch: Asio's handlers keep it alive, and find out that the watch is gone by `closed`.
struct WatchState : std::enable_shared_from_this<WatchState> {
  WatchState(asio::io_context& context, int fd, EventLoop::Task readable, EventLoop::Task writable)
      : descriptor(context, fd), on_readable(std::move(readable)), on_writable(std::move(writable)) {}

  void arm_read() {
    if (closed || !reading || read_armed) return;
    read_armed = true;
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](const asio::error_code& error) {
                            self->read_armed = false;
                            if (self->closed || error || !self->reading) return;
                            self->on_readable();
                            self->arm_read();
                          });
  }

  void arm_write() {
    if (closed || write_armed) return;
    write_armed = true;
    descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                          [self = shared_from_this()](const asio::error_code& error) {
                            self->write_armed = false;
                            if (self->closed || error) return;
                            self->on_writable();
                          });
  }

  asio::posix::stream_descriptor descriptor;
  EventLoop::Task on_readable;
  EventLoop::Task on_writable;
  bool closed = false;
  bool reading = true;
  bool read_armed = false;
  bool write_armed = false;
};

class Watch final : public FdWatch {
 public:
  explicit Watch(std::shared_ptr<WatchState> state) : state_(std::move(state)) { state_->arm_read(); }
  ~Watch() override {
    state_->closed = true;
    // Cancels what is armed and takes the descriptor out of epoll without closing it: it is not ours.
    state_->descriptor.release();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void want_write() override { state_->arm_write(); }
  void want_read(bool on) override {
    state_->reading = on;
    if (on) state_->arm_read();
  }

 private:
  std::shared_ptr<WatchState> state_;
};

}  // namespace

struct EventLoop::State {
  struct Posted {
    Task task;
    bool by_loop = false;  // by the loop's own thread
  };
  using TimerKey = std::pair<Deadline::Clock::time_point, TimerId>;

  State() : timer(context) {}

  // Sets the kernel timer to the earliest of ours, unless it is set to that or earlier already: then it
  // fires, finds nothing due and comes back here, which is cheaper than moving it on each change.
  void arm_timer() {
    if (timers.empty()) return;
    const auto earliest = timers.begin()->first.first;
    if (timer_armed && earliest >= armed_for) return;
    timer_armed = true;
    armed_for = earliest;
    timer.expires_at(earliest);
    timer.async_wait([this](const asio::error_code& error) {
      if (error) return;  // moved to an earlier time
      timer_armed = false;
      run_due();
      arm_timer();
    });
  }

  // The kernel timer is set for a task that is not there any more. Left alone it fires for nothing, which is
  // cheaper than moving it, unless it would wake a process that sleeps.
  void disarm_timer(Deadline::Clock::time_point cancelled) {
    if (!timer_armed || cancelled != armed_for) return;
    if (!timers.empty() && timers.begin()->first.first - armed_for < kWorthAMove) return;
    timer_armed = false;
    timer.cancel();
    arm_timer();
  }

  void run_due() {
    const auto now = Deadline::Clock::now();
    while (!timers.empty() && timers.begin()->first.first <= now) {
      Task task = std::move(timers.begin()->second);
      timer_times.erase(timers.begin()->first.second);
      timers.erase(timers.begin());
      task();
    }
  }

  // Tells the loop thread that the inbox has something. Not by asio::post from other threads: that wakes the
  // loop while it holds the lock that the loop needs next, so on a busy machine each post would cost two more
  // switches between the threads.
  void notice_inbox(bool from_loop) {
    if (from_loop) {
      asio::post(context, [this] { run_inbox(); });
    } else {
      const std::uint64_t one = 1;
      static_cast<void>(::write(inbox_event.get(), &one, sizeof(one)));
    }
  }

  void watch_inbox() {
    inbox_watch = std::make_unique<Watch>(std::make_shared<WatchState>(
        context, inbox_event.get(),
        [this] {
          std::uint64_t count = 0;
          static_cast<void>(::read(inbox_event.get(), &count, sizeof(count)));
          run_inbox();
        },
        [] {}));
  }

  void run_inbox() {
    {
      const std::lock_guard lock(inbox_mutex);
      inbox_noticed = false;
      batch.swap(inbox);
    }
    run_batch();
  }

  // The next turn is on its way already for what stays in the inbox.
  void run_others_posts() {
    if (running_batch) return;  // the tasks of the batch come first, in their order
    {
      const std::lock_guard lock(inbox_mutex);
      for (Posted& posted : inbox) {
        if (!posted.by_loop) batch.push_back(std::move(posted));
      }
      std::erase_if(inbox, [](const Posted& posted) { return !posted.by_loop; });
    }
    run_batch();
  }

  void run_batch() {
    running_batch = true;
    for (Posted& posted : batch) {
      if (context.stopped()) return;
      posted.task();
      posted.task = nullptr;  // what it holds goes before the next one runs, as with a queue
    }
    batch.clear();
    running_batch = false;
  }

  // The thread has ended. What tasks hold may still post and cancel while it is destroyed.
  void drop_inbox() {
    batch.clear();
    for (;;) {
      std::vector<Posted> dropped;
      {
        const std::lock_guard lock(inbox_mutex);
        inbox_noticed = true;
        dropped.swap(inbox);
      }
      if (dropped.empty()) return;
    }
  }

  // Declared before the context: handlers that it destroys may still cancel timers.
  std::map<TimerKey, Task> timers;
  std::map<TimerId, Deadline::Clock::time_point> timer_times;
  TimerId next_timer = 1;
  bool timer_armed = false;
  Deadline::Clock::time_point armed_for;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{asio::make_work_guard(context)};
  asio::steady_timer timer;
  Fd inbox_event{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::mutex inbox_mutex;
  std::vector<Posted> inbox;   // guarded by inbox_mutex
  bool inbox_noticed = false;  // guarded likewise: run_inbox will be called
  std::vector<Posted> batch;   // the loop thread's, as is the next
  bool running_batch = false;
  std::unique_ptr<Watch> inbox_watch;
  std::atomic<std::thread::id> thread_id{};
  std::thread thread;
  ForkGuard fork_guard;
};

EventLoop::EventLoop(const std::string& name) {
  try {
    start(name);
  } catch (const std::system_error& error) {  // Asio's, or the thread's: out of descriptors or of threads
    state_.reset();
    problem_ = Error::from_errno(error.code().value(), "cannot start the event loop " + name);
  }
}

void EventLoop::start(const std::string& name) {
  state_ = std::make_unique<State>();
  if (!state_->inbox_event) throw std::system_error(errno, std::generic_category());
  // Signals are for the application's threads: block all of them while the loop thread is made, so that it
  // inherits that.
  state_->watch_inbox();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_.get()]() noexcept {
      state->thread_id = std::this_thread::get_id();
      state->context.run();
    });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(state_->thread.native_handle(), name.substr(0, 15).c_str());
}

EventLoop::~EventLoop() {
  if (!state_) return;
  if (state_->fork_guard.forked()) {
    // The thread exists in the parent alone, and Asio's descriptors were shared with it: leak everything,
    // touch nothing.
    static_cast<void>(state_.release());
    return;
  }
  stop();
  state_->drop_inbox();
}

Status EventLoop::ready() const {
  if (problem_) return *problem_;
  return {};
}

void EventLoop::post(Task task) {
  if (!state_) return;
  const bool by_loop = on_loop_thread();
  {
    const std::lock_guard lock(state_->inbox_mutex);
    state_->inbox.push_back({.task = std::move(task), .by_loop = by_loop});
    if (std::exchange(state_->inbox_noticed, true)) return;
  }
  state_->notice_inbox(by_loop);
}

void EventLoop::run_posted() {
  state_->run_others_posts();
}

bool EventLoop::on_loop_thread() const noexcept {
  return state_ && std::this_thread::get_id() == state_->thread_id.load(std::memory_order_relaxed);
}

EventLoop::TimerId EventLoop::call_at(Deadline when, Task task) {
  const TimerId id = state_->next_timer++;
  state_->timers.emplace(State::TimerKey{when.at(), id}, std::move(task));
  state_->timer_times.emplace(id, when.at());
  state_->arm_timer();
  return id;
}

void EventLoop::cancel(TimerId id) {
  const auto found = state_->timer_times.find(id);
  if (found == state_->timer_times.end()) return;
  const Deadline::Clock::time_point cancelled = found->second;
  state_->timers.erase(State::TimerKey{cancelled, id});
  state_->timer_times.erase(found);
  state_->disarm_timer(cancelled);
}

std::unique_ptr<FdWatch> EventLoop::watch(int fd, Task on_readable, Task on_writable) {
  return std::make_unique<Watch>(
      std::make_shared<WatchState>(state_->context, fd, std::move(on_readable), std::move(on_writable)));
}

void EventLoop::stop() {
  if (!state_ || !state_->thread.joinable()) return;
  state_->context.stop();
  state_->thread.join();
  // Now, and not when the loop is destroyed: somebody may be waiting for what such a task holds.
  state_->drop_inbox();
}

}  // namespace stagewire
