// The range allocator of pools: two-level segregated fit (M. Masmano, I. Ripoll, A. Crespo, J. Real: "TLSF: a
// new dynamic memory allocator for real-time systems", ECRTS 2004) over offsets. Its records live outside of
// the memory it manages, because that is shared with peers, may be device memory, and is too large to touch.
// Not thread-safe: the owning Pool calls it under its lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace stagewire {

/// Hands out ranges of [0, size) in multiples of 256 bytes. Every operation takes constant time.
///
/// The memory is seen as 32 zones of equal length, each with its own lists of free ranges by size class.
/// Small requests (below 1/256 of the whole) take the highest zone that has a range for them, large ones the
/// lowest: long-lived small ones would otherwise come to lie between the large and keep freed ranges from
/// joining (bench/memory/allocator_bench has the figures).
///
/// A request finds memory whenever a free range exists that is larger than it by 1/32, and nearly always when
/// one fits at all: kScan ranges of its own size class are looked at in each zone.
class Allocator {
 public:
  static constexpr std::uint64_t kGranularity = 256;

  struct Allocation {
    std::uint64_t offset = 0;  ///< bytes, a multiple of kGranularity
    std::uint64_t size = 0;    ///< bytes taken, rounding included
    std::uint64_t stamp = 0;   ///< unique among all allocations that this allocator ever makes; never 0
    std::uint32_t slot = 0;    ///< its record: small and unique among live allocations; for side tables
  };

  enum class Release : std::uint8_t {
    ok,
    unknown,  ///< there never was such an allocation
    stale,    ///< there was, and it has been released before
  };

  /// Manages `size` bytes, rounded down to kGranularity; at most 16 TiB.
  explicit Allocator(std::uint64_t size);

  /// Takes `size` bytes; 0 counts as 1. Empty when no range is free for it.
  std::optional<Allocation> allocate(std::uint64_t size);
  /// Gives an allocation back. Anything but `ok` changes nothing.
  Release release(std::uint32_t slot, std::uint64_t offset, std::uint64_t stamp) noexcept;

  std::uint64_t size() const noexcept { return units_ * kGranularity; }
  std::uint64_t used() const noexcept { return used_units_ * kGranularity; }
  /// The largest request, in bytes, that would succeed now.
  std::uint64_t largest_free() const noexcept;
  std::uint64_t live() const noexcept { return live_; }

  /// Verifies every internal invariant in linear time; for tests.
  bool consistent() const;

 private:
  static constexpr std::uint32_t kNil = 0xffffffffU;
  // 32 classes per power of two: a class is 1/32 of its size wide. 2^36 units (16 TiB) need 33 rows: one for
  // sizes below 32 units, and one for each power of two from 2^5 to 2^36.
  static constexpr unsigned kColumnBits = 5;
  static constexpr std::uint32_t kColumns = 1U << kColumnBits;
  static constexpr std::uint32_t kRows = 33;
  static constexpr std::uint32_t kZones = 32;
  // How many ranges of one class are compared to find a tight fit; bounds the time.
  static constexpr int kScan = 16;

  enum class BlockState : std::uint8_t { unused, free, taken };

  struct Block {
    std::uint64_t offset = 0;     // units
    std::uint64_t units = 0;      // length
    std::uint64_t stamp = 0;      // of the newest allocation in this record
    std::uint32_t before = kNil;  // neighbours in memory
    std::uint32_t after = kNil;
    std::uint32_t previous = kNil;  // neighbours in the list of the size class; `next` also links unused
    std::uint32_t next = kNil;      // records
    BlockState state = BlockState::unused;
  };

  struct Class {
    std::uint32_t row;
    std::uint32_t column;
  };

  // The free ranges that start in one part of the memory, by size class.
  struct Zone {
    std::uint64_t rows = 0;                      // bit r: row r has ranges
    std::array<std::uint32_t, kRows> columns{};  // bit c of [r]: class (r, c) has ranges
    std::array<std::uint32_t, std::size_t{kRows} * kColumns> heads{};

    static std::size_t index(Class c) noexcept { return std::size_t{c.row} * kColumns + c.column; }
    std::uint32_t& head(Class c) noexcept { return heads[index(c)]; }
    std::uint32_t head(Class c) const noexcept { return heads[index(c)]; }
  };

  static Class class_of(std::uint64_t units) noexcept;
  std::size_t zone_of(std::uint32_t index) const noexcept {
    return static_cast<std::size_t>(blocks_[index].offset / zone_units_);
  }
  std::uint32_t find(std::uint64_t units, bool from_end) const noexcept;
  std::uint32_t find(const Zone& zone, std::uint64_t units) const noexcept;
  std::uint64_t largest_free(const Zone& zone) const noexcept;
  std::uint32_t tightest(std::uint32_t from, std::uint64_t units) const noexcept;
  void link(std::uint32_t index) noexcept;
  void unlink(std::uint32_t index) noexcept;
  std::uint32_t take_record();
  void drop_record(std::uint32_t index) noexcept;
  std::uint32_t split(std::uint32_t index, std::uint64_t units, bool from_end);
  void absorb_next(std::uint32_t index) noexcept;

  std::uint64_t units_;
  std::uint64_t small_units_;  // requests below this count as small
  std::uint64_t zone_units_;   // length of a zone
  std::uint64_t used_units_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t newest_stamp_ = 0;  // 64 bits: does not come round
  std::vector<Block> blocks_;
  std::uint32_t unused_ = kNil;
  std::uint32_t zones_with_free_ = 0;  // bit z: zone z has free ranges
  std::array<Zone, kZones> zones_;
};

}  // namespace stagewire
