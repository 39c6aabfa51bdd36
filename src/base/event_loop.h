// EventLoop: the one thread on which a node's control state lives. Runs posted tasks in order, timers, and
// callbacks for descriptors that become readable or writable. Built on Asio, which stands in event_loop.cc
// alone. Owned by the node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>

#include "base/unique_function.h"

namespace stagewire {

/// Watches one descriptor. Made, used and destroyed on the loop thread; destroying it ends the callbacks at
/// once. Does not own the descriptor, which must stay open until the watch is gone.
class FdWatch {
 public:
  virtual ~FdWatch() = default;
  /// Asks for one call of on_writable when the descriptor can be written. Repeats are merged.
  virtual void want_write() = 0;
  /// Stops or resumes the calls of on_readable.
  virtual void want_read(bool on) = 0;
};

class EventLoop {
 public:
  using Task = UniqueFunction<void()>;
  using TimerId = std::uint64_t;
  /// Told of the stages that the loop's owner gets to (fault_points.h); for tests, which end the process
  /// there.
  using Reached = std::function<void(std::string_view point)>;

  /// Starts the thread; `name` (≤ 15 characters) names it for debuggers. Whether that worked is what ready()
  /// says.
  explicit EventLoop(const std::string& name);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// An error (io) if the loop could not be started for want of descriptors or threads: it then drops
  /// whatever is posted. Any thread.
  Status ready() const;

  /// Runs `task` on the loop thread, after those posted before it. Any thread. Tasks that have not run by the
  /// end of stop() are dropped there, and those posted later when the loop is destroyed.
  void post(Task task);
  bool on_loop_thread() const noexcept;
  /// Who is told of fault points; nobody without it. Before anything is posted.
  void on_reach(Reached reached) { reached_ = std::move(reached); }

  // Loop thread only:

  /// The work is at this fault point now.
  void reach(std::string_view point) const {
    if (reached_) reached_(point);
  }

  /// Runs what other threads have posted so far, now instead of on the next turn: for a handler whose input
  /// must not overtake what they had posted before it was sent. What the loop's own thread has posted still
  /// waits for the next turn, which it may rely on. Does nothing within a posted task.
  void run_posted();

  /// Runs `task` once at `when`. Adding or cancelling among n timers costs O(log n).
  TimerId call_at(Deadline when, Task task);
  /// Cancels a timer; unknown ids (0, fired, cancelled) are ignored.
  void cancel(TimerId id);
  /// Calls on_readable whenever `fd` has something to read or has hung up (level-triggered), until the watch
  /// is destroyed.
  std::unique_ptr<FdWatch> watch(int fd, Task on_readable, Task on_writable);

  /// Ends the loop after the task that runs now and joins the thread. Any other thread; idempotent. Pending
  /// tasks and timers do not run.
  void stop();

 private:
  struct State;
  void start(const std::string& name);

  std::unique_ptr<State> state_;  // none if the start failed
  std::optional<Error> problem_;
  Reached reached_;
};

}  // namespace stagewire
