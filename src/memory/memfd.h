// Memory that can be shown to other processes: creation of sealed memfds, verified import of a peer's, and
// the populating of both. The functions run on any thread; what they return is owned by the caller (a Pool,
// or the shm transport's attachment).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <stagewire/base/result.h>

#include "base/fd.h"

namespace stagewire {

/// The largest pool or import, in bytes. A bound on what a peer may ask this process to map, and the limit
/// that the allocator's class table is made for.
inline constexpr std::uint64_t kMaxMemorySize = 1ULL << 44;

/// The seals that memory has to carry before a peer may see it, as an F_SEAL_ mask: SHRINK (a reader is never
/// hit by SIGBUS), GROW, FUTURE_WRITE (nobody but the creator's own first mapping can ever write, not even
/// through /proc/<pid>/fd) and SEAL (none of this can be changed).
int required_seals() noexcept;

/// An owned mapping, unmapped on destruction. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  /// Bytes mapped.
  std::size_t size() const noexcept { return size_; }
  void reset() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Faults a mapping's pages in on a thread of its own, so that the first user does not pay for it. Stops and
/// joins on destruction (within one step, a few ms; in a forked child it does nothing); must not outlive the
/// mapping. Never needed for correctness: an error just leaves the pages to be faulted in by their users.
class BackgroundPopulate {
 public:
  enum class Access : std::uint8_t {
    read,   ///< maps what is there; for a peer's memory
    write,  ///< allocates and maps writable; for memory of our own. Never changes a byte.
  };

  /// Errors: io (no thread could be started).
  static Result<std::unique_ptr<BackgroundPopulate>> start(const Mapping& mapping, Access access);
  BackgroundPopulate(const BackgroundPopulate&) = delete;
  BackgroundPopulate& operator=(const BackgroundPopulate&) = delete;
  ~BackgroundPopulate();

  /// Bytes done so far, from the start of the mapping. Any thread.
  std::uint64_t done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// True once the thread has nothing left to do (all pages are in, or the kernel refused). Any thread.
  bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }
  /// Blocks until finished() or stopped.
  void wait() const noexcept { finished_.wait(false, std::memory_order_acquire); }

 private:
  BackgroundPopulate(std::byte* data, std::size_t size, Access access) noexcept
      : data_(data), size_(size), access_(access) {}
  void run() noexcept;

  std::byte* data_;
  std::size_t size_;
  Access access_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> finished_{false};
  ForkGuard fork_guard_;
  std::unique_ptr<std::thread> thread_;
};

/// Memory of our own: the sealed memfd, its only writable mapping, and the page size obtained.
struct SealedMemory {
  Fd fd;
  Mapping mapping;
  std::size_t page_size = 0;  ///< bytes
};

/// Creates a memfd of at least `size` bytes (rounded up to the page size obtained), maps it writable and
/// seals it with required_seals(). With `huge_pages`, hugetlb pages are tried first; where the kernel has
/// none to give, ordinary pages are used, and `page_size` says so. Errors: invalid_argument (size 0 or above
/// kMaxMemorySize), io.
Result<SealedMemory> create_sealed(const std::string& name, std::uint64_t size, bool huge_pages);

/// A peer's memory, mapped read-only. Destroying it unmaps.
struct ImportedMapping {
  Mapping mapping;
  std::unique_ptr<BackgroundPopulate> populate;  ///< declared last: ends before the mapping does
};

/// Maps a memfd that came from a peer, after checking that it is one, carries all of required_seals() and has
/// exactly `expected_size` bytes. Takes the descriptor and closes it in every case. With `populate`, the
/// pages are faulted in on a background thread. Errors: invalid_argument (expected_size 0 or above
/// kMaxMemorySize); protocol, naming what was missing (no memfd, which seals, which size); io.
Result<ImportedMapping> import_sealed(Fd fd, std::uint64_t expected_size, bool populate);

}  // namespace stagewire
