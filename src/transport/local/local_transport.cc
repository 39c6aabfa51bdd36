// See local_transport.h.
#include "transport/local/local_transport.h"

#include "transport/local/local_link.h"

namespace stagewire {

LocalTransport::LocalTransport(CopyEngine& engine)
    : engine_(engine), memories_(std::make_shared<Memories>()) {}

Viability LocalTransport::viability() const {
  return {true, "works everywhere, within one process"};
}

Result<MemoryToken> LocalTransport::export_memory(const ExportedMemory& memory) {
  if (memory.base == nullptr) return Error(ErrorKind::invalid_argument, "no memory was given to export");
  if (!memories_->emplace(memory.memory, memory).second) {
    return Error(ErrorKind::invalid_argument,
                 "memory " + std::to_string(memory.memory) + " is exported already");
  }
  return MemoryToken();
}

// Copies that are running hold the memory themselves, and so does whoever pinned it for longer.
void LocalTransport::forget_memory(std::uint32_t memory, std::shared_ptr<const void> /*until*/) {
  memories_->erase(memory);
}

Result<std::unique_ptr<Link>> LocalTransport::connect(LinkChannel& channel, std::string_view /*peer_hello*/) {
  return std::unique_ptr<Link>(
      std::make_unique<LocalLink>(engine_, memories_, channel.peer() == channel.self()));
}

void LocalTransport::close() {
  memories_->clear();
}

}  // namespace stagewire
