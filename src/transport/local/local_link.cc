// See local_link.h. Memories are looked up in the transport's table at each call: what is exported is
// attached.
#include "transport/local/local_link.h"

#include <utility>
#include <vector>

#include "transport/ranges.h"

namespace stagewire {

namespace {

constexpr std::string_view kName = "local";

struct Resolved {
  std::vector<MappedRange> ranges;
  std::vector<std::shared_ptr<const void>> holds;
  bool has_region = false;
};

Result<Resolved> resolve(const LocalTransport::Memories& memories, std::span<const RemoteRange> from) {
  Resolved resolved;
  resolved.ranges.reserve(from.size());
  const ExportedMemory* last = nullptr;
  for (const RemoteRange& range : from) {
    const auto found = memories.find(range.memory);
    if (found == memories.end()) return unknown_memory(range.memory, kName);
    const ExportedMemory& memory = found->second;
    STAGEWIRE_TRY(check_within(range, memory.size));
    resolved.ranges.push_back({memory.base + range.offset, range.length});
    if (&memory != last) resolved.holds.push_back(memory.hold);
    if (memory.is_region()) resolved.has_region = true;
    last = &memory;
  }
  return resolved;
}

}  // namespace

LocalLink::LocalLink(CopyEngine& engine, std::shared_ptr<const LocalTransport::Memories> memories,
                     bool same_node)
    : memories_(std::move(memories)), same_node_(same_node), reads_(engine) {}

Viability LocalLink::viability(MemoryKind source, MemoryKind destination) const {
  if (!same_node_) return {false, "not viable, because the peer is another process"};
  if (!source.is_host() || !destination.is_host()) {
    return {false, "not viable, because it moves host memory only, not " + to_string(source) + " to " +
                       to_string(destination)};
  }
  return {true, "the peer is this very node"};
}

Status LocalLink::attach(ImportedMemory memory) {
  const auto found = memories_->find(memory.memory);
  if (!same_node_ || found == memories_->end()) return unknown_memory(memory.memory, kName);
  if (found->second.size != memory.size) {
    return Error(ErrorKind::protocol, "memory " + std::to_string(memory.memory) + " was announced with " +
                                          std::to_string(memory.size) + " bytes and has " +
                                          std::to_string(found->second.size));
  }
  return {};
}

Status LocalLink::on_message(std::string_view /*message*/) {
  return Error(ErrorKind::protocol, "the local transport has no messages");
}

Result<Link::View> LocalLink::view(std::span<const RemoteRange> from) {
  STAGEWIRE_ASSIGN(Resolved resolved, resolve(*memories_, from));
  if (resolved.has_region) {
    return Error(ErrorKind::not_viable,
                 "the payload lies in a region, which its owner may want back at any time");
  }
  View view;
  view.data.reserve(resolved.ranges.size());
  for (const MappedRange& range : resolved.ranges) view.data.push_back(range.data);
  view.hold = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(resolved.holds));
  return view;
}

ReadId LocalLink::read(ReadRequest request, ReadDone done) {
  auto total = check_request(request);
  if (!total.ok()) return reads_.refuse(std::move(total).error(), std::move(done));
  auto resolved = resolve(*memories_, request.from);
  if (!resolved.ok()) return reads_.refuse(std::move(resolved).error(), std::move(done));
  auto hold = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(resolved->holds));
  return reads_.start(resolved->ranges, request.to, std::move(hold), std::move(done));
}

void LocalLink::abort(ReadId id, std::function<void()> settled) {
  reads_.abort(id, std::move(settled));
}

void LocalLink::close(std::function<void()> closed) {
  reads_.close(std::move(closed));
}

}  // namespace stagewire
