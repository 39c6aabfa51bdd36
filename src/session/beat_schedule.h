// BeatSchedule: when an end of a session sends its heartbeats. Pure state, time comes in as an argument; the
// session's loop thread.
#pragma once

#include <chrono>

namespace stagewire {

/// A heartbeat goes out every period, or up to a quarter earlier with the answer to the peer's; the one after
/// such an early one may be up to a quarter late. So the two ends' heartbeats fall together, and an idle pair
/// wakes each of its processes twice a period instead of three times.
class BeatSchedule {
 public:
  explicit BeatSchedule(std::chrono::nanoseconds period) : period_(period) {}

  /// One was sent at `now` because it was due. Returns how long until the next.
  std::chrono::nanoseconds sent(std::chrono::nanoseconds now) noexcept {
    newest_ = now;
    return period_;
  }
  /// Whether one should leave now, with the answer to the peer's.
  bool joins_peers(std::chrono::nanoseconds now) const noexcept { return now - newest_ >= period_ * 3 / 4; }
  /// One was sent at `now` with the answer to the peer's. Returns how long until the next: a little longer
  /// than it takes the peer's next to come.
  std::chrono::nanoseconds sent_with_peers(std::chrono::nanoseconds now) noexcept {
    newest_ = now;
    return period_ * 5 / 4;
  }

 private:
  std::chrono::nanoseconds period_;
  std::chrono::nanoseconds newest_{0};
};

}  // namespace stagewire
