// Got: what a get returned, and the handle of a get that is still running. Both are thread-compatible values
// over shared state; dropping a Got releases its memory or its lease.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>
#include <stagewire/payload/payload.h>

namespace stagewire {

/// A payload that has arrived complete. Its tensors point into the sender's memory (a view, whose lease ends
/// when the last tensor's hold is gone), into the receive pool, or into the caller's destinations.
class Got {
 public:
  Payload payload;
  std::uint64_t generation = 0;
  std::uint64_t size = 0;      ///< tensor bytes
  std::string transport;       ///< "inline", "local", "shm", "tcp", …
  bool view = false;           ///< tensors lie in the sender's memory
  std::string placement_note;  ///< why a view that was asked for became a copy, or which
                               ///< transport failed before; else empty
};

/// A running get. Copies share it.
class GetHandle {
 public:
  struct State;
  GetHandle() = default;
  explicit GetHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool valid() const noexcept { return state_ != nullptr; }
  /// True once the outcome is there.
  bool done() const noexcept;
  /// Waits at most until `until` for the outcome; the get's own deadline goes on. Errors: deadline_exceeded,
  /// interrupted (a signal handler ran on this thread and `interruptible` is set; waiting again is allowed).
  Status wait(Deadline until, bool interruptible = false) const;
  /// The outcome, once. Before it is there: deadline_exceeded, and the get goes on.
  Result<Got> take();
  /// An eventfd that becomes readable when the outcome is there; owned by the handle. -1 if none could be
  /// made.
  int fd() const;
  /// Gives up: the outcome will be `cancelled`, unless it is there already.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

}  // namespace stagewire
