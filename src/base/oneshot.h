// Oneshot: one value handed from the thread that has it (usually the loop) to whoever wants it: a caller that
// sleeps with a deadline, one that polls an eventfd, or a continuation. The two ends share the state; each
// may be destroyed first. Built on a futex, because std::atomic::wait has no deadline and a condition
// variable costs a lock on both sides; waking costs one system call if somebody sleeps and none if nobody
// does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>

#include "base/fd.h"
#include "base/unique_function.h"

namespace stagewire {

/// What a wait does when a signal handler has run on its thread.
enum class OnSignal : std::uint8_t {
  keep_waiting,
  give_up,  ///< returns an Error of kind interrupted; waiting again is allowed
};

namespace detail {

/// The part of a Oneshot that does not depend on the type of its value. Thread-safe.
class OneshotState {
 public:
  OneshotState() = default;
  OneshotState(const OneshotState&) = delete;
  OneshotState& operator=(const OneshotState&) = delete;

  /// The value is in place: wakes whoever waits. Once, by the promise alone.
  void complete() noexcept { finish(kReady); }
  /// There will be no value: wakes whoever waits. Instead of complete().
  void abandon() noexcept { finish(kAbandoned); }

  bool ready() const noexcept { return (word_.load(std::memory_order_acquire) & kReady) != 0; }
  bool finished() const noexcept { return (word_.load(std::memory_order_acquire) & kFinished) != 0; }
  /// True for exactly one caller, after complete().
  bool claim_value() noexcept;
  Status wait(Deadline deadline, std::chrono::nanoseconds spin, OnSignal on_signal);
  Result<int> event_fd();
  void then(UniqueFunction<void()> continuation);

 private:
  // The futex word: flags, and above them the number of sleeping threads.
  static constexpr std::uint32_t kReady = 1U << 0U;
  static constexpr std::uint32_t kAbandoned = 1U << 1U;
  static constexpr std::uint32_t kFinished = kReady | kAbandoned;
  static constexpr std::uint32_t kTaken = 1U << 2U;
  static constexpr std::uint32_t kHasEvent = 1U << 3U;
  static constexpr std::uint32_t kHasContinuation = 1U << 4U;
  static constexpr std::uint32_t kOneSleeper = 1U << 8U;

  void finish(std::uint32_t flag) noexcept;
  void signal_event() noexcept;
  void run_continuation() noexcept;
  bool spin_until_finished(Deadline deadline, std::chrono::nanoseconds spin) const noexcept;
  Status outcome(std::uint32_t word) const;

  std::atomic<std::uint32_t> word_{0};
  Fd event_;
  UniqueFunction<void()> continuation_;
  ForkGuard fork_;
};

template <typename T>
struct OneshotShared {
  OneshotState state;
  std::optional<T> value;  // written before complete(), taken by the one who claimed it
};

}  // namespace detail

/// The end that gives the value. Movable; one thread at a time. Destroyed without a value, it abandons the
/// future: its wait ends with an Error of kind closed.
template <typename T>
class OneshotPromise {
 public:
  OneshotPromise() = default;
  explicit OneshotPromise(std::shared_ptr<detail::OneshotShared<T>> shared) noexcept
      : shared_(std::move(shared)) {}
  OneshotPromise(OneshotPromise&&) noexcept = default;
  OneshotPromise& operator=(OneshotPromise&& other) noexcept {
    if (this != &other) {
      abandon();
      shared_ = std::move(other.shared_);
    }
    return *this;
  }
  OneshotPromise(const OneshotPromise&) = delete;
  OneshotPromise& operator=(const OneshotPromise&) = delete;
  ~OneshotPromise() { abandon(); }

  /// Gives the value and wakes whoever waits; the continuation runs here, before this returns. False, and the
  /// value is dropped, if one was given before.
  bool set(T value) {
    const auto shared = std::exchange(shared_, nullptr);
    if (!shared) return false;
    shared->value.emplace(std::move(value));
    shared->state.complete();
    return true;
  }
  /// True until set() was called.
  explicit operator bool() const noexcept { return shared_ != nullptr; }

 private:
  void abandon() noexcept {
    if (const auto shared = std::exchange(shared_, nullptr)) shared->state.abandon();
  }

  std::shared_ptr<detail::OneshotShared<T>> shared_;
};

/// The end that takes the value. Copies refer to the same value; all of them may be used by any thread.
template <typename T>
class OneshotFuture {
 public:
  OneshotFuture() = default;
  explicit OneshotFuture(std::shared_ptr<detail::OneshotShared<T>> shared) noexcept
      : shared_(std::move(shared)) {}

  /// Whether this belongs to a promise. Nothing else may be called on one that does not.
  explicit operator bool() const noexcept { return shared_ != nullptr; }
  /// The value has been given (and may have been taken).
  bool ready() const noexcept { return shared_->state.ready(); }
  /// The value has been given, or never will be.
  bool finished() const noexcept { return shared_->state.finished(); }

  /// Waits for the value and leaves it in place. Spins up to `spin` before it sleeps, where another core
  /// could be producing it. Errors: deadline_exceeded; closed (the promise is gone); interrupted (only with
  /// give_up).
  Status wait(Deadline deadline, std::chrono::nanoseconds spin = std::chrono::nanoseconds(0),
              OnSignal on_signal = OnSignal::keep_waiting) const {
    return shared_->state.wait(deadline, spin, on_signal);
  }
  /// The value, for the first caller after it was given; nothing for any other.
  std::optional<T> try_take() const {
    if (!shared_->state.claim_value()) return std::nullopt;
    std::optional<T> taken = std::move(shared_->value);
    shared_->value.reset();
    return taken;
  }

  /// A descriptor for poll() that becomes readable, for good, when the value was given or never will be.
  /// Made at the first call; owned by the shared state, so valid as long as a future exists; do not read it.
  /// From one thread at a time. Errors: io, forked.
  Result<int> event_fd() const { return shared_->state.event_fd(); }
  /// Runs `continuation` once, when the value was given or never will be: on the thread that gives it, or
  /// here and now if that has happened. No lock is held. What it throws ends the process. At most one per
  /// value; it must not own the future, or neither is freed before the value comes.
  void then(UniqueFunction<void()> continuation) const { shared_->state.then(std::move(continuation)); }

 private:
  std::shared_ptr<detail::OneshotShared<T>> shared_;
};

/// Both ends of a new hand-over.
template <typename T>
struct Oneshot {
  OneshotPromise<T> promise;
  OneshotFuture<T> future;

  static Oneshot make() {
    auto shared = std::make_shared<detail::OneshotShared<T>>();
    return {OneshotPromise<T>(shared), OneshotFuture<T>(shared)};
  }
};

}  // namespace stagewire
