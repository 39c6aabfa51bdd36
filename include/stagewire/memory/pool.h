// Pool and Buffer: memory that is set up once (mapped, sealed, touched, registered with transports) and lent
// out in ranges. A pool has one use: publish pools are exported to peers read-only, receive pools never leave
// the process. Thread-safe; owned by shared_ptr, and kept alive by its buffers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>
#include <stagewire/memory/memory_kind.h>

namespace stagewire {

/// Every buffer starts at a multiple of this many bytes (DESIGN: segments are 256-byte aligned; it is also
/// what GPU copy kernels and cache lines want).
inline constexpr std::size_t kBufferAlignment = 256;

enum class PoolUse : std::uint8_t {
  publish,  ///< memory that peers may read
  receive,  ///< memory that only this process reads and writes
};

struct PoolOptions {
  std::string name = "pool";  ///< stands in errors, logs and metrics
  PoolUse use = PoolUse::publish;
  MemoryKind kind = MemoryKind::host();
  std::uint64_t size = 1ULL << 30;  ///< bytes; rounded up to the page size
  bool huge_pages = false;          ///< try hugetlb pages; Pool::page_size() says what was obtained
  bool touch_in_background = true;  ///< fault the pages in on a background thread after creation
};

class Pool;

/// An RAII range of a pool. Move-only; releasing it (destruction) may run on any thread and wakes the oldest
/// waiter. In a forked child releasing does nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  /// The size asked for, in bytes (the range itself may be larger, rounded to kBufferAlignment).
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// Byte offset of data() from the start of the pool.
  std::uint64_t offset() const noexcept { return offset_; }
  const std::shared_ptr<Pool>& pool() const noexcept { return pool_; }
  /// Gives the range back now. Does nothing on an empty buffer.
  void release() noexcept;

 private:
  friend class Pool;
  Buffer(std::shared_ptr<Pool> pool, std::byte* data, std::size_t size, std::uint64_t offset,
         std::uint64_t stamp, std::uint32_t slot) noexcept;

  std::shared_ptr<Pool> pool_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t stamp_ = 0;  // identifies this very allocation, so that a stale release is detected
  std::uint32_t slot_ = 0;   // the allocator's record of it
};

/// A holder of pool memory as the exhaustion error and `explain` show it.
struct PoolHolder {
  std::string label;  ///< what the memory was allocated for
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds age{0};  ///< since allocation
};

/// A snapshot of a pool's occupancy; all sizes in bytes.
struct PoolStats {
  std::uint64_t size = 0;
  std::uint64_t used = 0;          ///< allocated, rounding included
  std::uint64_t largest_free = 0;  ///< the largest request that would succeed at once
  std::uint64_t buffers = 0;       ///< live allocations
  std::uint64_t waiting = 0;       ///< requests waiting for memory
  std::uint64_t peak_used = 0;
  std::uint64_t failed = 0;         ///< requests that ended without memory
  std::uint64_t bad_releases = 0;   ///< wrong, double or stale releases; not 0 means a bug in stagewire
  std::uint64_t touched = 0;        ///< bytes faulted in by the background thread so far
  std::vector<PoolHolder> largest;  ///< up to 3
  std::vector<PoolHolder> oldest;   ///< up to 3
};

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  /// Creates, maps and seals the pool's memory. Returns before the memory is touched. Errors:
  /// invalid_argument (size 0 or above 16 TiB, unsupported kind), io.
  static Result<std::shared_ptr<Pool>> create(PoolOptions options);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  /// Allocates `size` bytes (0 is allowed and gives a valid non-null address). Waits first-come-first-served
  /// until the deadline. Errors: too_large at once if the pool could never hold it; pool_exhausted at the
  /// deadline, naming the sizes and the largest and oldest holders; closed; forked. `label` says what for,
  /// and stands in other callers' errors (cut to 120 bytes).
  Result<Buffer> allocate(std::size_t size, std::string label, Deadline deadline);

  /// As allocate, without a thread waiting: `done` is called exactly once, either before this returns or
  /// later on the thread that freed memory, cancelled or closed; never under a lock. It must not throw, nor
  /// wait for memory of this pool. The caller bounds the wait with cancel().
  using AllocationDone = std::function<void(Result<Buffer>)>;
  using AllocationId = std::uint64_t;
  AllocationId allocate_async(std::size_t size, std::string label, AllocationDone done);
  /// Ends a waiting request: its `done` gets pool_exhausted (as at a deadline) before this returns. False if
  /// it was not waiting any more.
  bool cancel(AllocationId id);

  /// Ends all waits with `closed`; later requests fail the same way. Live buffers stay valid.
  void close();

  /// Identifies the pool within its node; 0 until the node has taken it over.
  std::uint32_t id() const noexcept { return id_; }
  void set_id(std::uint32_t id) noexcept { id_ = id; }
  const std::string& name() const noexcept { return options_.name; }
  PoolUse use() const noexcept { return options_.use; }
  MemoryKind kind() const noexcept { return options_.kind; }
  std::byte* base() const noexcept { return base_; }
  std::uint64_t size() const noexcept { return size_; }
  /// The memfd behind the pool, owned by the pool; sealed SHRINK|GROW|FUTURE_WRITE|SEAL. Only that of a
  /// publish pool may be sent to a peer; -1 for a receive pool, whose descriptor is closed once it is mapped.
  int memfd() const noexcept;
  /// Page size actually obtained, in bytes.
  std::size_t page_size() const noexcept { return page_size_; }
  bool contains(const void* data, std::size_t size) const noexcept;
  /// Takes time linear in the number of buffers, for the holders.
  PoolStats stats() const;
  /// As stats() without the holders, in constant time: for metrics.
  PoolStats occupancy() const;

 private:
  friend class Buffer;
  struct State;
  explicit Pool(PoolOptions options);
  void free(std::uint32_t slot, std::uint64_t offset, std::uint64_t stamp) noexcept;

  PoolOptions options_;
  std::uint32_t id_ = 0;
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
  std::size_t page_size_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace stagewire
