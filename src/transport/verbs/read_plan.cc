// See read_plan.h. One pass over both lists; each step takes the bytes up to the nearest border.
#include "transport/verbs/read_plan.h"

#include <algorithm>
#include <string>

#include "transport/ranges.h"

namespace stagewire {

namespace {

/// The local side: where the next byte goes and how far its registration reaches.
class LocalCursor {
 public:
  LocalCursor(std::span<const LocalRange> ranges, std::span<const LocalMemory> memory)
      : ranges_(ranges), memory_(memory) {
    settle();
  }
  bool ok() const noexcept { return ok_; }
  std::uint64_t run() const noexcept { return run_; }
  std::uintptr_t address() const noexcept { return address_; }
  std::uint32_t lkey() const noexcept { return lkey_; }
  void advance(std::uint64_t bytes) {
    address_ += bytes;
    run_ -= bytes;
    left_ -= bytes;
    if (run_ == 0) settle();
  }

 private:
  // Enters the next range, or the next registration under the same one.
  void settle() {
    while (left_ == 0 && next_ < ranges_.size()) {
      address_ = reinterpret_cast<std::uintptr_t>(ranges_[next_].data);
      left_ = ranges_[next_].length;
      ++next_;
    }
    if (left_ == 0) return;
    // Destinations mostly go upwards: the registration of the last piece is the first guess.
    if (current_ >= memory_.size() || !within(memory_[current_])) {
      const auto after =
          std::upper_bound(memory_.begin(), memory_.end(), address_,
                           [](std::uintptr_t a, const LocalMemory& m) { return a < m.address; });
      if (after == memory_.begin()) {
        ok_ = false;
        return;
      }
      current_ = static_cast<std::size_t>(after - memory_.begin()) - 1;
      if (!within(memory_[current_])) {
        ok_ = false;
        return;
      }
    }
    const LocalMemory& memory = memory_[current_];
    run_ = std::min<std::uint64_t>(left_, memory.size - (address_ - memory.address));
    lkey_ = memory.lkey;
  }
  bool within(const LocalMemory& memory) const noexcept {
    return address_ >= memory.address && address_ - memory.address < memory.size;
  }

  std::span<const LocalRange> ranges_;
  std::span<const LocalMemory> memory_;
  std::size_t next_ = 0;
  std::size_t current_ = 0;
  std::uint64_t left_ = 0;  // bytes of the range
  std::uint64_t run_ = 0;   // bytes of it under one registration
  std::uintptr_t address_ = 0;
  std::uint32_t lkey_ = 0;
  bool ok_ = true;
};

/// Adds a piece to the request that is being built, or begins another.
void append(ReadPlan& plan, std::uint64_t remote, std::uint32_t rkey, LocalCursor& local,
            std::uint32_t length, const PlanLimits& limits) {
  if (!plan.reads.empty()) {
    PlannedRead& last = plan.reads.back();
    const bool goes_on = last.rkey == rkey && last.remote + last.length == remote &&
                         length <= limits.chunk - std::min(last.length, limits.chunk);
    if (goes_on) {
      ibv_sge& piece = plan.pieces.back();
      if (piece.lkey == local.lkey() && piece.addr + piece.length == local.address()) {
        piece.length += length;
        last.length += length;
        return;
      }
      if (last.sge_count < limits.max_sge) {
        plan.pieces.push_back({local.address(), length, local.lkey()});
        ++last.sge_count;
        last.length += length;
        return;
      }
    }
  }
  plan.reads.push_back({remote, rkey, length, static_cast<std::uint32_t>(plan.pieces.size()), 1});
  plan.pieces.push_back({local.address(), length, local.lkey()});
}

}  // namespace

Result<ReadPlan> plan_read(std::span<const RemoteRange> from, std::span<const LocalRange> to, FindRemote find,
                           const void* context, std::span<const LocalMemory> local,
                           const PlanLimits& limits) {
  ReadPlan plan;
  plan.reads.reserve(std::max(from.size(), to.size()));
  plan.pieces.reserve(std::max(from.size(), to.size()));
  LocalCursor cursor(to, local);
  const RemoteMemory* memory = nullptr;
  std::uint32_t memory_id = 0;
  for (const RemoteRange& range : from) {
    if (range.length == 0) continue;
    if (memory == nullptr || memory_id != range.memory) {
      memory = find(context, range.memory);
      memory_id = range.memory;
      if (memory == nullptr) return unknown_memory(range.memory, "verbs");
    }
    std::uint64_t offset = range.offset;
    std::uint64_t left = range.length;
    while (left != 0) {
      if (!cursor.ok() || cursor.run() == 0) {
        return Error(ErrorKind::internal, "a destination of a verbs read is not registered");
      }
      const std::uint64_t index = offset / memory->piece;
      const std::uint64_t border = memory->piece - offset % memory->piece;
      std::uint64_t step = std::min({left, cursor.run(), border, std::uint64_t{limits.chunk}});
      // A request that is not full yet takes what still fits; the rest begins the next one.
      if (!plan.reads.empty()) {
        const PlannedRead& last = plan.reads.back();
        if (last.remote + last.length == memory->address + offset && last.length < limits.chunk)
          step = std::min<std::uint64_t>(step, limits.chunk - last.length);
      }
      append(plan, memory->address + offset, memory->rkeys[index], cursor, static_cast<std::uint32_t>(step),
             limits);
      cursor.advance(step);
      offset += step;
      left -= step;
    }
  }
  return plan;
}

std::vector<LocalMemory> pages_of(std::span<const LocalRange> ranges, std::uint64_t page) {
  std::vector<LocalMemory> pages;
  pages.reserve(ranges.size());
  for (const LocalRange& range : ranges) {
    if (range.length == 0) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(range.data);
    const std::uintptr_t begin = address / page * page;
    const std::uintptr_t end = (address + range.length - 1) / page * page + page;
    pages.push_back({begin, end - begin, 0});
  }
  std::sort(pages.begin(), pages.end(),
            [](const LocalMemory& a, const LocalMemory& b) { return a.address < b.address; });
  std::size_t kept = 0;
  for (const LocalMemory& each : pages) {
    if (kept != 0 && each.address <= pages[kept - 1].address + pages[kept - 1].size) {
      LocalMemory& last = pages[kept - 1];
      last.size = std::max(last.address + last.size, each.address + each.size) - last.address;
    } else {
      pages[kept++] = each;
    }
  }
  pages.resize(kept);
  return pages;
}

}  // namespace stagewire
