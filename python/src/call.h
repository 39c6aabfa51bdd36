// What the node's, the future's and the connector's bindings share: reading arguments, waiting so that Ctrl-C
// ends it, handing results over. With the interpreter lock held.
#pragma once

#include <chrono>
#include <functional>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <optional>
#include <string>

#include <stagewire/node/node.h>

#include "base/oneshot.h"
#include "tree_out.h"

namespace stagewire::python {

/// A number of seconds (int or float, not NaN) as a duration, `name` being the argument's.
std::chrono::nanoseconds seconds_from(nanobind::handle seconds, const char* operation, const char* name);
std::optional<std::chrono::nanoseconds> optional_seconds(nanobind::handle seconds, const char* operation,
                                                         const char* name);

/// How a get's result is to be handed over.
struct Handover {
  Framework framework = Framework::numpy;
  bool details = false;  ///< a Got object instead of the payload alone
};
/// A result as Python objects; throws its error.
nanobind::object hand_over(Result<Got> got, const Handover& handover);

/// One wait of the core, by a deadline, which a signal handler on this thread may be let end early: ok,
/// deadline_exceeded, interrupted, or an error that waiting again does not mend.
using WaitOnce = std::function<Status(Deadline by, bool interruptible)>;
/// Waits without the lock until `wait` succeeds or `until`; runs signal handlers in between on the main
/// thread. True if it succeeded. Throws what a signal handler raises, and other errors of `wait`.
bool wait_in_slices(const WaitOnce& wait, Deadline until);
/// The same for a value of the core. True also if it is certain that there will never be one.
template <typename T>
bool wait_interruptibly(const OneshotFuture<T>& future, Deadline until) {
  if (future.finished()) return true;
  return wait_in_slices(
      [&future](Deadline by, bool interruptible) {
        const Status waited = future.wait(by, std::chrono::nanoseconds(0),
                                          interruptible ? OnSignal::give_up : OnSignal::keep_waiting);
        return waited.ok() || future.finished() ? Status() : waited;
      },
      until);
}

/// Waits until the get has ended or `until`; runs signal handlers in between on the main thread. True if it
/// has ended. Throws what a signal handler raises; the get goes on then.
bool wait_interruptibly(const GetHandle& handle, Deadline until);
/// Gives the get up and waits, without signals, until its outcome is there, so that nothing writes into its
/// destination any more.
void abandon(GetHandle& handle, const Node& node);

}  // namespace stagewire::python
