// See allocator.h. Sizes are counted in units of 256 bytes throughout; a free range never has a free
// neighbour, because release joins them at once.
#include "memory/allocator.h"

#include <algorithm>
#include <bit>

namespace stagewire {

Allocator::Allocator(std::uint64_t size)
    : units_(std::min(size / kGranularity, std::uint64_t{1} << 36U)),
      small_units_(units_ / 256),
      zone_units_(std::max<std::uint64_t>((units_ + kZones - 1) / kZones, 1)) {
  for (Zone& zone : zones_) zone.heads.fill(kNil);
  if (units_ == 0) return;
  const std::uint32_t index = take_record();
  blocks_[index].units = units_;
  link(index);
}

Allocator::Class Allocator::class_of(std::uint64_t units) noexcept {
  if (units < kColumns) return {0, static_cast<std::uint32_t>(units)};
  const auto power = static_cast<unsigned>(std::bit_width(units)) - 1U;
  return {power - kColumnBits + 1U,
          static_cast<std::uint32_t>(units >> (power - kColumnBits)) & (kColumns - 1U)};
}

std::uint32_t Allocator::tightest(std::uint32_t from, std::uint64_t units) const noexcept {
  std::uint32_t best = kNil;
  for (int looked = 0; from != kNil && looked < kScan; ++looked, from = blocks_[from].next) {
    const std::uint64_t size = blocks_[from].units;
    if (size < units || (best != kNil && size >= blocks_[best].units)) continue;
    best = from;
    if (size == units) break;
  }
  return best;
}

std::uint32_t Allocator::find(std::uint64_t units, bool from_end) const noexcept {
  for (std::uint32_t left = zones_with_free_; left != 0;) {
    const int number = from_end ? static_cast<int>(std::bit_width(left)) - 1 : std::countr_zero(left);
    left &= ~(std::uint32_t{1} << number);
    const std::uint32_t index = find(zones_[static_cast<std::size_t>(number)], units);
    if (index != kNil) return index;
  }
  return kNil;
}

std::uint32_t Allocator::find(const Zone& zone, std::uint64_t units) const noexcept {
  const Class own = class_of(units);
  const std::uint32_t fit = tightest(zone.head(own), units);
  if (fit != kNil) return fit;
  // Every range of a higher class is larger than any of the own one. Shifts by the full width are undefined,
  // so the masks are made in two steps.
  Class above = own;
  std::uint32_t columns = zone.columns[own.row] & ((~std::uint32_t{0} << own.column) << 1U);
  if (columns == 0) {
    const std::uint64_t rows = zone.rows & ((~std::uint64_t{0} << own.row) << 1U);
    if (rows == 0) return kNil;
    above.row = static_cast<std::uint32_t>(std::countr_zero(rows));
    columns = zone.columns[above.row];
  }
  above.column = static_cast<std::uint32_t>(std::countr_zero(columns));
  return tightest(zone.head(above), units);
}

void Allocator::link(std::uint32_t index) noexcept {
  Block& block = blocks_[index];
  const std::size_t number = zone_of(index);
  Zone& zone = zones_[number];
  const Class c = class_of(block.units);
  block.state = BlockState::free;
  block.previous = kNil;
  block.next = zone.head(c);
  if (block.next != kNil) blocks_[block.next].previous = index;
  zone.head(c) = index;
  zone.columns[c.row] |= std::uint32_t{1} << c.column;
  zone.rows |= std::uint64_t{1} << c.row;
  zones_with_free_ |= std::uint32_t{1} << number;
}

void Allocator::unlink(std::uint32_t index) noexcept {
  const Block& block = blocks_[index];
  if (block.next != kNil) blocks_[block.next].previous = block.previous;
  if (block.previous != kNil) {
    blocks_[block.previous].next = block.next;
    return;
  }
  const std::size_t number = zone_of(index);
  Zone& zone = zones_[number];
  const Class c = class_of(block.units);
  zone.head(c) = block.next;
  if (block.next != kNil) return;
  zone.columns[c.row] &= ~(std::uint32_t{1} << c.column);
  if (zone.columns[c.row] == 0) zone.rows &= ~(std::uint64_t{1} << c.row);
  if (zone.rows == 0) zones_with_free_ &= ~(std::uint32_t{1} << number);
}

std::uint32_t Allocator::take_record() {
  if (unused_ != kNil) {
    const std::uint32_t index = unused_;
    unused_ = blocks_[index].next;
    blocks_[index] = Block{};
    return index;
  }
  if (blocks_.size() >= kNil) return kNil;
  blocks_.emplace_back();
  return static_cast<std::uint32_t>(blocks_.size() - 1);
}

void Allocator::drop_record(std::uint32_t index) noexcept {
  blocks_[index].state = BlockState::unused;
  blocks_[index].next = unused_;
  unused_ = index;
}

// Cuts `units` off the free, unlinked block `index` and returns the record of the cut piece; the rest is
// linked again. kNil when no record is left (2^32 ranges).
std::uint32_t Allocator::split(std::uint32_t index, std::uint64_t units, bool from_end) {
  const std::uint32_t added = take_record();
  if (added == kNil) return kNil;
  Block& lower = blocks_[index];
  Block& upper = blocks_[added];
  const std::uint64_t lower_units = from_end ? lower.units - units : units;
  upper.offset = lower.offset + lower_units;
  upper.units = lower.units - lower_units;
  upper.before = index;
  upper.after = lower.after;
  if (upper.after != kNil) blocks_[upper.after].before = added;
  lower.units = lower_units;
  lower.after = added;
  link(from_end ? index : added);
  return from_end ? added : index;
}

std::optional<Allocator::Allocation> Allocator::allocate(std::uint64_t size) {
  if (size > this->size()) return std::nullopt;
  const std::uint64_t units = std::max<std::uint64_t>((size + kGranularity - 1) / kGranularity, 1);
  if (units > units_) return std::nullopt;
  const bool small = units < small_units_;
  std::uint32_t index = find(units, small);
  if (index == kNil) return std::nullopt;
  unlink(index);
  if (blocks_[index].units > units) {
    const std::uint32_t piece = split(index, units, small);
    if (piece == kNil) {
      link(index);
      return std::nullopt;
    }
    index = piece;
  }
  Block& block = blocks_[index];
  block.state = BlockState::taken;
  block.stamp = ++newest_stamp_;
  used_units_ += units;
  ++live_;
  return Allocation{block.offset * kGranularity, units * kGranularity, block.stamp, index};
}

// Joins the free, unlinked block that follows `index` into it.
void Allocator::absorb_next(std::uint32_t index) noexcept {
  Block& block = blocks_[index];
  const std::uint32_t gone = block.after;
  block.units += blocks_[gone].units;
  block.after = blocks_[gone].after;
  if (block.after != kNil) blocks_[block.after].before = index;
  drop_record(gone);
}

Allocator::Release Allocator::release(std::uint32_t slot, std::uint64_t offset,
                                      std::uint64_t stamp) noexcept {
  if (slot >= blocks_.size() || stamp == 0 || stamp > newest_stamp_) return Release::unknown;
  std::uint32_t index = slot;
  // Records are used again, stamps never: whatever an older stamp named is gone.
  if (stamp != blocks_[index].stamp || blocks_[index].state != BlockState::taken) return Release::stale;
  if (offset != blocks_[index].offset * kGranularity) return Release::unknown;
  used_units_ -= blocks_[index].units;
  --live_;
  blocks_[index].state = BlockState::free;
  const std::uint32_t after = blocks_[index].after;
  if (after != kNil && blocks_[after].state == BlockState::free) {
    unlink(after);
    absorb_next(index);
  }
  const std::uint32_t before = blocks_[index].before;
  if (before != kNil && blocks_[before].state == BlockState::free) {
    unlink(before);
    absorb_next(before);
    index = before;
  }
  link(index);
  return Release::ok;
}

std::uint64_t Allocator::largest_free(const Zone& zone) const noexcept {
  if (zone.rows == 0) return 0;
  const auto row = static_cast<std::uint32_t>(std::bit_width(zone.rows)) - 1U;
  const auto column = static_cast<std::uint32_t>(std::bit_width(zone.columns[row])) - 1U;
  // The same ranges that find() looks at in its own class, so the answer is what a request would meet.
  std::uint64_t largest = 0;
  std::uint32_t at = zone.head({row, column});
  for (int looked = 0; at != kNil && looked < kScan; ++looked, at = blocks_[at].next)
    largest = std::max(largest, blocks_[at].units);
  return largest * kGranularity;
}

std::uint64_t Allocator::largest_free() const noexcept {
  std::uint64_t largest = 0;
  for (const Zone& zone : zones_) largest = std::max(largest, largest_free(zone));
  return largest;
}

bool Allocator::consistent() const {
  std::uint64_t taken = 0;
  std::uint64_t live = 0;
  std::uint64_t free_blocks = 0;
  std::uint64_t covered = 0;
  std::uint64_t in_memory = 0;
  std::uint32_t first = kNil;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.state == BlockState::unused) continue;
    ++in_memory;
    if (block.before == kNil) {
      if (first != kNil) return false;
      first = i;
    }
    if (block.state == BlockState::free) ++free_blocks;
  }
  bool previous_free = false;
  for (std::uint32_t at = first; at != kNil; at = blocks_[at].after) {
    const Block& block = blocks_[at];
    if (block.offset != covered || block.units == 0 || in_memory-- == 0) return false;
    covered += block.units;
    const bool is_free = block.state == BlockState::free;
    if (is_free && previous_free) return false;
    previous_free = is_free;
    if (is_free) continue;
    taken += block.units;
    ++live;
  }
  if (covered != units_ || in_memory != 0 || taken != used_units_ || live != live_) return false;
  for (const Zone& zone : zones_) {
    for (std::uint32_t row = 0; row < kRows; ++row) {
      if (((zone.rows >> row) & 1U) != (zone.columns[row] != 0 ? 1U : 0U)) return false;
      for (std::uint32_t column = 0; column < kColumns; ++column) {
        std::uint32_t at = zone.head({row, column});
        if (((zone.columns[row] >> column) & 1U) != (at != kNil ? 1U : 0U)) return false;
        for (std::uint32_t previous = kNil; at != kNil; previous = at, at = blocks_[at].next) {
          const Block& block = blocks_[at];
          const Class c = class_of(block.units);
          if (block.state != BlockState::free || block.previous != previous || c.row != row ||
              c.column != column || &zone != &zones_[zone_of(at)] || free_blocks-- == 0)
            return false;
        }
      }
    }
  }
  return free_blocks == 0;
}

}  // namespace stagewire
