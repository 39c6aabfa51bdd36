// Worker: one thread that runs tasks in order, for calls that block (name resolution, unmapping). Keeps such
// calls off the event loop. Owned by the node.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/unique_function.h"

namespace stagewire {

class Worker {
 public:
  /// The thread starts with the first task; `name` (≤ 15 characters) names it for debuggers.
  explicit Worker(std::string name);
  /// Runs what is queued, then joins.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Any thread. Tasks posted after stop() are dropped.
  void post(UniqueFunction<void()> task);
  /// Drops what has not started, waits for what runs, joins. Any other thread; idempotent.
  void stop();

 private:
  struct State;

  std::string name_;
  std::unique_ptr<State> state_;  // left alone in a forked child
  ForkGuard fork_guard_;
};

}  // namespace stagewire
