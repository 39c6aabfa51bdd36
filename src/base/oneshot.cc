// The futex word of a Oneshot. Every change of state is one atomic operation on it, and whoever sees both
// "finished" and "somebody registered" in the value before its own change is the one who acts, so that each
// event and continuation fires exactly once.
#include "base/oneshot.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace stagewire::detail {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "the kernel reads the atomic as a plain word");

// Sleeps while the word is `expected`, at most until `deadline` (absolute, CLOCK_MONOTONIC, which is what
// FUTEX_WAIT_BITSET takes and what Deadline is measured on). Returns 0 or an errno.
int futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline) noexcept {
  const auto since_boot = std::max(deadline.at().time_since_epoch(), Deadline::Clock::duration(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  std::timespec until{};
  until.tv_sec = seconds.count();
  until.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot - seconds).count();
  const long result = ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, &until,
                                nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 ? 0 : errno;
}

void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void OneshotState::finish(std::uint32_t flag) noexcept {
  const std::uint32_t before = word_.fetch_or(flag, std::memory_order_acq_rel);
  if (before >= kOneSleeper) futex_wake_all(word_);
  if ((before & kHasEvent) != 0) signal_event();
  if ((before & kHasContinuation) != 0) run_continuation();
}

bool OneshotState::claim_value() noexcept {
  if (!ready()) return false;
  return (word_.fetch_or(kTaken, std::memory_order_acq_rel) & kTaken) == 0;
}

Status OneshotState::outcome(std::uint32_t word) const {
  if ((word & kReady) != 0) return {};
  return Error(ErrorKind::closed, "the operation was dropped before it had a result");
}

bool OneshotState::spin_until_finished(Deadline deadline, std::chrono::nanoseconds spin) const noexcept {
  // On one core the producer cannot run while this thread spins.
  static const bool several_cores = std::thread::hardware_concurrency() > 1;
  if (!several_cores || spin <= std::chrono::nanoseconds(0)) return false;
  const Deadline until = Deadline::in(spin).earlier(deadline);
  do {
    if (finished()) return true;
    pause_cpu();
  } while (!until.passed());
  return finished();
}

Status OneshotState::wait(Deadline deadline, std::chrono::nanoseconds spin, OnSignal on_signal) {
  std::uint32_t word = word_.load(std::memory_order_acquire);
  if ((word & kFinished) != 0) return outcome(word);
  if (spin_until_finished(deadline, spin)) return outcome(word_.load(std::memory_order_acquire));

  STAGEWIRE_TRY(fork_.check());  // in a forked child nobody is left to finish it
  // Counted before the last look at the flags: a finish() after that look sees the count and wakes.
  word = word_.fetch_add(kOneSleeper, std::memory_order_acq_rel) + kOneSleeper;
  int fault = 0;
  while ((word & kFinished) == 0) {
    fault = futex_wait(word_, word, deadline);
    word = word_.load(std::memory_order_acquire);
    if (fault == ETIMEDOUT || (fault == EINTR && on_signal == OnSignal::give_up)) break;
  }
  word_.fetch_sub(kOneSleeper, std::memory_order_acq_rel);
  if ((word & kFinished) != 0) return outcome(word);
  if (fault == EINTR) return Error(ErrorKind::interrupted, "a signal arrived while waiting");
  return Error(ErrorKind::deadline_exceeded, "the deadline passed before there was a result");
}

Result<int> OneshotState::event_fd() {
  STAGEWIRE_TRY(fork_.check());
  if (event_) return event_.get();
  event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) return Error::from_errno(errno, "cannot create an eventfd");
  if ((word_.fetch_or(kHasEvent, std::memory_order_acq_rel) & kFinished) != 0) signal_event();
  return event_.get();
}

void OneshotState::signal_event() noexcept {
  // In a forked child the number may belong to another file by now.
  if (fork_.forked()) return;
  const std::uint64_t one = 1;
  // Cannot fail: the counter is 0 and the descriptor is ours.
  static_cast<void>(!::write(event_.get(), &one, sizeof(one)));
}

void OneshotState::then(UniqueFunction<void()> continuation) {
  // Replacing the first one would lose it silently; a caller that does this is broken.
  if ((word_.load(std::memory_order_relaxed) & kHasContinuation) != 0) std::abort();
  continuation_ = std::move(continuation);
  if ((word_.fetch_or(kHasContinuation, std::memory_order_acq_rel) & kFinished) != 0) run_continuation();
}

void OneshotState::run_continuation() noexcept {
  // Moved out so that what it captured is released as soon as it has run.
  UniqueFunction<void()> run = std::move(continuation_);
  if (run) run();
}

}  // namespace stagewire::detail
