// Deadline: the point in time by which an operation must have ended. Every wait in stagewire has one.
// Measured on CLOCK_MONOTONIC (std::chrono::steady_clock), so it is immune to wall-clock changes and local to
// one host.
#pragma once

#include <algorithm>
#include <chrono>

namespace stagewire {

/// A point on the steady clock. A plain value; thread-safe as one.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// The longest deadline there is (100 days); longer ones are clamped, so arithmetic on time points cannot
  /// overflow.
  static constexpr std::chrono::hours kLongest{24 * 100};

  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}

  /// `timeout` from now. Negative timeouts mean a deadline that has already passed.
  static Deadline in(std::chrono::nanoseconds timeout) noexcept {
    return Deadline(Clock::now() +
                    std::clamp<std::chrono::nanoseconds>(timeout, std::chrono::seconds(-1), kLongest));
  }
  /// A deadline that has passed: "only if it can be done without waiting".
  static Deadline now() noexcept { return Deadline(Clock::now()); }

  Clock::time_point at() const noexcept { return at_; }
  bool passed() const noexcept { return Clock::now() >= at_; }
  /// Time left, never negative.
  std::chrono::nanoseconds left() const noexcept {
    return std::max<std::chrono::nanoseconds>(at_ - Clock::now(), std::chrono::nanoseconds(0));
  }
  /// The earlier of this deadline and `other`.
  Deadline earlier(Deadline other) const noexcept { return Deadline(std::min(at_, other.at_)); }

  friend bool operator<(Deadline a, Deadline b) noexcept { return a.at_ < b.at_; }
  friend bool operator==(Deadline a, Deadline b) noexcept { return a.at_ == b.at_; }

 private:
  Clock::time_point at_;
};

}  // namespace stagewire
