// What the extension keeps for the whole process: whether the interpreter is ending, how many calls are outside
// the interpreter lock, which nodes have to be closed at exit. Everything here is called with the lock held,
// except where noted; the lock is also what guards it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include <stagewire/node/node.h>

namespace stagewire::python {

/// Gives up the interpreter lock for its lifetime. Once the interpreter is ending it keeps the lock instead: a
/// thread that asks for the lock after that never gets it, and would take the process down on its way out. Every
/// wait returns at once by then, since all nodes are closed.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Whether close_process() has begun.
bool process_ending();
/// Closes `node` at exit if it is still open by then.
void close_at_exit(const std::shared_ptr<Node>& node);
/// Closes all nodes, waits until no call is outside the lock any more (bounded: a bug must not keep the process),
/// and drops what is queued. For atexit.
void close_process();
/// A forked child starts with no calls outside the lock and no nodes.
void forget_after_fork();

/// Whether Python runs signal handlers on this thread. Needs no lock.
bool on_main_thread();
/// Runs Python's signal handlers; throws what they raise. On other threads than the main one it does nothing.
void run_signal_handlers();

}  // namespace stagewire::python
