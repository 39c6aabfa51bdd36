// See shm_transport.h.
#include "transport/shm/shm_transport.h"

#include "transport/bytes.h"
#include "transport/shm/shm_link.h"

namespace stagewire {

namespace shm {

namespace {
constexpr std::uint64_t kMagic = 0x31306d6873777473ULL;  // "stwshm01" as little-endian text
}

std::string make_token(std::uint64_t size) {
  std::string token;
  bytes::put(token, kMagic);
  bytes::put(token, size);
  return token;
}

Result<std::uint64_t> parse_token(std::string_view token) {
  if (token.size() != kTokenSize) {
    return Error(ErrorKind::protocol, "a shm token has " + std::to_string(token.size()) +
                                          " bytes; expected " + std::to_string(kTokenSize));
  }
  if (bytes::get<std::uint64_t>(token.data()) != kMagic) {
    return Error(ErrorKind::protocol, "a shm token does not begin with this version's magic");
  }
  return bytes::get<std::uint64_t>(token.data() + 8);
}

}  // namespace shm

ShmTransport::ShmTransport(CopyEngine& engine) : engine_(engine) {}

Viability ShmTransport::viability() const {
  return {true, "sealed memfds work on every kernel that stagewire runs on"};
}

Result<MemoryToken> ShmTransport::export_memory(const ExportedMemory& memory) {
  STAGEWIRE_TRY(check_exportable(memory, name()));
  if (memory.is_region()) {
    return Error(ErrorKind::not_viable,
                 "shm shares pools alone; a peer's mapping of " + memory.name + " could not be taken back");
  }
  if (memory.pool->memfd() < 0) {
    return Error(ErrorKind::not_viable, "pool '" + memory.pool->name() + "' has no memfd behind it");
  }
  MemoryToken token;
  token.token = shm::make_token(memory.pool->size());
  token.descriptors.push_back(memory.pool->memfd());
  return token;
}

Result<std::unique_ptr<Link>> ShmTransport::connect(LinkChannel& channel, std::string_view /*peer_hello*/) {
  return std::unique_ptr<Link>(std::make_unique<ShmLink>(engine_, channel.same_host()));
}

}  // namespace stagewire
