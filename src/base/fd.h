// Fd: an owned file descriptor. Also the one piece of process-wide state in stagewire, the table of
// descriptors that a forked child has to close (DESIGN I10): pthread_atfork offers no other place to keep it.
// Thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include <stagewire/base/result.h>

namespace stagewire {

/// Marks `fd` to be closed in a forked child without a byte sent; unmark before handing it to somebody else.
/// Lock-free.
void mark_close_on_fork(int fd) noexcept;
void unmark_close_on_fork(int fd) noexcept;

/// A number that changes in a forked child. An object that remembers the number it was made under, and finds
/// another, belongs to the parent process and must do nothing.
std::uint64_t fork_epoch() noexcept;

/// Remembers the fork epoch it was made in.
class ForkGuard {
 public:
  ForkGuard() noexcept : epoch_(fork_epoch()) {}
  /// True in a child that was forked after this guard was made.
  bool forked() const noexcept { return epoch_ != fork_epoch(); }
  /// The Error every handle of the parent answers with in a child.
  Status check() const;

 private:
  std::uint64_t epoch_;
};

/// An owned descriptor, closed on destruction and in forked children. A child's copy of a parent's Fd does
/// nothing when it is destroyed: its number may be another file of the child's by then.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {
    if (fd_ >= 0) mark_close_on_fork(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), made_in_(other.made_in_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      made_in_ = other.made_in_;
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;
  /// Gives up ownership; the descriptor is no longer closed on fork. -1 in a forked child.
  int release() noexcept;

 private:
  int fd_ = -1;
  ForkGuard made_in_;
};

}  // namespace stagewire
