// What the extension keeps for the whole process: whether the interpreter is ending, how many calls are
// outside the interpreter lock, which nodes have to be closed at exit. Everything here is called with the
// lock held, except where noted; the lock is also what guards it.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>

#include <stagewire/node/node.h>

namespace stagewire::python {

/// Counts a call into the extension, from its first to its last use of the interpreter lock: the end of the
/// process waits for it. A daemon thread that calls once the interpreter is ending stays here for good,
/// without the lock: the interpreter ends such threads when they ask for the lock, by unwinding frames that
/// cannot be unwound.
class Entered {
 public:
  Entered();
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
};
/// For every bound function that can run Python code or wait.
using Guard = nanobind::call_guard<Entered>;

/// Gives up the interpreter lock for its lifetime, which is part of a call. Once the interpreter is ending it
/// keeps the lock instead: no wait lasts any more, since all nodes are closed.
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
/// Closes all nodes, waits until no call is outside the lock any more (bounded: a bug must not keep the
/// process), and drops what is queued. For atexit.
void close_process();
/// A forked child starts with no calls outside the lock and no nodes.
void forget_after_fork();

/// Whether Python runs signal handlers on this thread. Needs no lock.
bool on_main_thread();
/// Runs Python's signal handlers; throws what they raise. On other threads than the main one it does nothing.
void run_signal_handlers();

}  // namespace stagewire::python
