// The two ends of a lease between hosts, as pure state over a clock reading (DESIGN: how a lease ends). The
// lender expires a silent reader and raises the lease epoch first; the reader trusts its leases only while
// the newest heartbeat that the lender acknowledged in this epoch was sent less than 0.8 lease periods ago.
// Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>

namespace stagewire {

/// The reader's end, one per lender. Times are CLOCK_BOOTTIME.
class ReaderLeaseClock {
 public:
  /// The part of the lender's period that the reader uses: the rest covers clocks that run at different
  /// speeds, and the time between reading the clock and telling the caller.
  static constexpr double kUsableShare = 0.8;

  /// The lender acknowledged a sign of life that we sent at `sent`, in `epoch`. Acknowledgements of older
  /// epochs and of older signs are ignored. Returns true if the epoch is new, that is, if all older leases
  /// have ended.
  bool on_acknowledged(std::chrono::nanoseconds sent, std::uint64_t epoch) noexcept {
    if (epoch < epoch_) return false;
    const bool raised = epoch > epoch_;
    if (raised) newest_ = std::chrono::nanoseconds(0);
    epoch_ = epoch;
    if (sent > newest_) newest_ = sent;
    return raised;
  }
  void set_period(std::chrono::nanoseconds lease) noexcept { period_ = lease; }

  /// Whether a lease granted in `lease_epoch` certainly still holds at `now`. Read the clock after the last
  /// byte.
  bool holds(std::uint64_t lease_epoch, std::chrono::nanoseconds now) const noexcept {
    return lease_epoch == epoch_ && now < valid_until();
  }
  std::chrono::nanoseconds valid_until() const noexcept {
    return newest_ + std::chrono::duration_cast<std::chrono::nanoseconds>(period_ * kUsableShare);
  }
  std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  std::uint64_t epoch_ = 0;
  std::chrono::nanoseconds newest_{0};
  std::chrono::nanoseconds period_{0};
};

/// The lender's end, one per reader.
class LenderLeaseClock {
 public:
  /// `epoch` is at least as high as any that this node has used for the same reader before, or the reader
  /// would take it for an old one.
  explicit LenderLeaseClock(std::uint64_t epoch = 1) noexcept : epoch_(epoch) {}

  void on_heard(std::chrono::nanoseconds now) noexcept { heard_ = now; }
  /// Whether the reader has been silent for a whole period.
  bool expired(std::chrono::nanoseconds now, std::chrono::nanoseconds period) const noexcept {
    return now - heard_ >= period;
  }
  std::chrono::nanoseconds heard() const noexcept { return heard_; }
  std::uint64_t epoch() const noexcept { return epoch_; }
  /// Ends every lease of older epochs in the reader's eyes. Before the memory is freed, always. `epoch` is
  /// higher than the one before.
  void raise_epoch(std::uint64_t epoch) noexcept { epoch_ = epoch; }

 private:
  std::chrono::nanoseconds heard_{0};
  std::uint64_t epoch_;
};

}  // namespace stagewire
