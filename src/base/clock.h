// Clocks that leases are counted on. A lease has to go on ageing while a machine is suspended, so it is
// measured on CLOCK_BOOTTIME; tests put a ManualClock in its place. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <ctime>

namespace stagewire {

/// Time since boot, suspension included (CLOCK_BOOTTIME). Comparable within one host and one boot alone.
inline std::chrono::nanoseconds boottime_now() noexcept {
  std::timespec now{};
  // Cannot fail: the clock exists since Linux 2.6.39 and the pointer is valid.
  static_cast<void>(::clock_gettime(CLOCK_BOOTTIME, &now));
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Where a part reads the time from. Implementations are thread-safe and never go backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an origin of the clock's own.
  virtual std::chrono::nanoseconds now() const noexcept = 0;

 protected:
  Clock() = default;
  Clock(const Clock&) = default;
  Clock& operator=(const Clock&) = default;
};

/// The real one.
class BoottimeClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const noexcept override { return boottime_now(); }
};

/// Stands still until it is advanced: for tests.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(std::chrono::nanoseconds start = std::chrono::nanoseconds(0)) noexcept
      : now_(start.count()) {}
  std::chrono::nanoseconds now() const noexcept override {
    return std::chrono::nanoseconds(now_.load(std::memory_order_acquire));
  }
  void advance(std::chrono::nanoseconds by) noexcept {
    now_.fetch_add(by.count(), std::memory_order_acq_rel);
  }

 private:
  std::atomic<std::chrono::nanoseconds::rep> now_;
};

}  // namespace stagewire
