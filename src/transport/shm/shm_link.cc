// See shm_link.h.
#include "transport/shm/shm_link.h"

#include <string>
#include <utility>

#include "transport/ranges.h"
#include "transport/shm/shm_transport.h"

namespace stagewire {

namespace {
constexpr std::string_view kName = "shm";
}

ShmLink::ShmLink(CopyEngine& engine, bool same_host) : same_host_(same_host), reads_(engine) {}

Viability ShmLink::viability(MemoryKind source, MemoryKind destination) const {
  if (!same_host_) {
    return {
        false,
        "not viable, because the session does not run over an authenticated Unix socket: the peer is on "
        "another host, or in a container whose sockets are not reachable (set a shared socket directory)"};
  }
  if (!source.is_host() || !destination.is_host()) {
    return {false, "not viable, because it moves host memory only, not " + to_string(source) + " to " +
                       to_string(destination)};
  }
  return {true, "same host, proven by an authenticated Unix socket"};
}

Status ShmLink::attach(ImportedMemory memory) {
  if (!same_host_) {
    return Error(ErrorKind::protocol, "a peer that is not proven to be on this host announced shared memory");
  }
  if (!memory.kind.is_host()) {
    return Error(ErrorKind::protocol, "shm memory was announced as " + to_string(memory.kind));
  }
  if (memory.descriptors.size() != 1) {
    return Error(ErrorKind::protocol, "shm memory " + std::to_string(memory.memory) + " came with " +
                                          std::to_string(memory.descriptors.size()) +
                                          " descriptors; expected exactly 1");
  }
  if (memories_.size() >= kMaxMemories) {
    return Error(ErrorKind::busy,
                 "the peer announced more than " + std::to_string(kMaxMemories) + " shared memories");
  }
  if (memories_.contains(memory.memory)) {
    return Error(ErrorKind::protocol, "memory " + std::to_string(memory.memory) + " was announced twice");
  }
  STAGEWIRE_ASSIGN(const std::uint64_t size, shm::parse_token(memory.token));
  if (size != memory.size) {
    return Error(ErrorKind::protocol, "shm memory " + std::to_string(memory.memory) + " was announced with " +
                                          std::to_string(memory.size) + " bytes and its token says " +
                                          std::to_string(size));
  }
  STAGEWIRE_ASSIGN(ImportedMapping mapping, import_sealed(std::move(memory.descriptors[0]), size, true));
  memories_.emplace(memory.memory, std::make_shared<const ImportedMapping>(std::move(mapping)));
  return {};
}

Status ShmLink::on_message(std::string_view /*message*/) {
  return Error(ErrorKind::protocol, "the shm transport has no messages");
}

Result<ShmLink::Resolved> ShmLink::resolve(std::span<const RemoteRange> from) const {
  Resolved resolved;
  resolved.ranges.reserve(from.size());
  // Nearly always all ranges lie in one memory, whose mapping is then itself the hold.
  std::vector<std::shared_ptr<const void>> more;
  const ImportedMapping* last = nullptr;
  for (const RemoteRange& range : from) {
    const auto found = memories_.find(range.memory);
    if (found == memories_.end()) return unknown_memory(range.memory, kName);
    const ImportedMapping& memory = *found->second;
    STAGEWIRE_TRY(check_within(range, memory.mapping.size()));
    resolved.ranges.push_back({memory.mapping.data() + range.offset, range.length});
    if (&memory == last) continue;
    last = &memory;
    if (resolved.hold == nullptr) {
      resolved.hold = found->second;
    } else {
      more.push_back(found->second);
    }
  }
  if (!more.empty()) {
    more.push_back(std::move(resolved.hold));
    resolved.hold = std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(more));
  }
  return resolved;
}

Result<Link::View> ShmLink::view(std::span<const RemoteRange> from) {
  STAGEWIRE_ASSIGN(Resolved resolved, resolve(from));
  View view;
  view.data.reserve(resolved.ranges.size());
  for (const MappedRange& range : resolved.ranges) view.data.push_back(range.data);
  view.hold = std::move(resolved.hold);
  return view;
}

ReadId ShmLink::read(ReadRequest request, ReadDone done) {
  auto total = check_request(request);
  if (!total.ok()) return reads_.refuse(std::move(total).error(), std::move(done));
  auto resolved = resolve(request.from);
  if (!resolved.ok()) return reads_.refuse(std::move(resolved).error(), std::move(done));
  return reads_.start(resolved->ranges, request.to, std::move(resolved->hold), std::move(done));
}

void ShmLink::abort(ReadId id, std::function<void()> settled) {
  reads_.abort(id, std::move(settled));
}

void ShmLink::close(std::function<void()> closed) {
  // The mappings themselves go with the link, or with the last view.
  reads_.close(std::move(closed));
}

}  // namespace stagewire
