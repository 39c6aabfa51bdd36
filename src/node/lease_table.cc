// See lease_table.h.
#include "node/lease_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stagewire {

namespace {
bool starts_before(const RemoteRange& a, const RemoteRange& b) {
  return std::tie(a.memory, a.offset) < std::tie(b.memory, b.offset);
}

// Sorts the ranges and makes one of those that overlap, as tensors published in place may: what a range holds
// is then in the last one that starts at or before it.
void sort_apart(std::vector<RemoteRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(), &starts_before);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    RemoteRange& last = ranges[kept];
    const RemoteRange& next = ranges[i];
    if (next.memory == last.memory && next.offset - last.offset < last.length) {
      last.length = std::max(last.length, next.offset - last.offset + next.length);
    } else {
      ranges[++kept] = next;
    }
  }
  if (!ranges.empty()) ranges.resize(kept + 1);
}
}  // namespace

void LeaseTable::add_memory(const ExportedMemory& memory) {
  const std::lock_guard lock(mutex_);
  memories_[memory.memory] = memory;
}

void LeaseTable::remove_memory(std::uint32_t memory) {
  ExportedMemory dropped;  // outlives the lock: its last reference may be this one
  const std::lock_guard lock(mutex_);
  const auto found = memories_.find(memory);
  if (found == memories_.end()) return;
  dropped = std::move(found->second);
  memories_.erase(found);
}

void LeaseTable::add(LeaseId lease, const NodeId& reader, const PublicationFacts& facts) {
  if (facts.is_inline) return;
  Entry entry{.reader = reader, .ranges = facts.ranges, .body = facts.body};
  sort_apart(entry.ranges);
  const std::lock_guard lock(mutex_);
  leases_.emplace(lease, std::move(entry));
}

void LeaseTable::remove(LeaseId lease) {
  Entry dropped;  // outlives the lock: the last reference runs the owner's callback
  const std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  dropped = std::move(found->second);
  leases_.erase(found);
}

Result<SourcePin> LeaseTable::pin(const NodeId& reader, std::uint64_t lease, const RemoteRange& range) {
  const std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.reader != reader) {
    return Error(ErrorKind::lease_lost,
                 "lease " + std::to_string(lease) + " has ended or is another reader's");
  }
  const std::vector<RemoteRange>& ranges = found->second.ranges;
  // The last range that starts at or before the wanted one is the only one that can hold it.
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), range, &starts_before);
  const RemoteRange holder = after == ranges.begin() ? RemoteRange{} : *std::prev(after);
  const bool inside = after != ranges.begin() && holder.memory == range.memory &&
                      range.offset - holder.offset <= holder.length &&
                      range.length <= holder.length - (range.offset - holder.offset);
  const auto memory = memories_.find(range.memory);
  if (!inside || memory == memories_.end()) {
    return Error(ErrorKind::protocol, "the reader asked for bytes that its lease does not cover");
  }
  return SourcePin{
      .data = memory->second.base + range.offset, .kind = memory->second.kind, .hold = found->second.body};
}

}  // namespace stagewire
