// The transport between processes of one host: a peer's publish pool is a sealed memfd, passed once per
// session and mapped read-only. Owned by the node, on its loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memory/copy.h"
#include "transport/transport.h"

namespace stagewire {

class ShmTransport final : public Transport {
 public:
  /// `engine` must outlive the transport and its links.
  explicit ShmTransport(CopyEngine& engine);

  std::string_view name() const override { return "shm"; }
  Viability viability() const override;
  int rank() const override { return 10; }
  std::string hello() const override { return {}; }
  Result<MemoryToken> export_memory(const ExportedMemory& memory) override;
  void forget_memory(std::uint32_t /*memory*/, std::shared_ptr<const void> /*until*/) override {}
  bool can_fence() const override { return false; }
  Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) override;
  void close() override {}

 private:
  CopyEngine& engine_;
};

/// What rides with the descriptor: 8 bytes of magic and version, 8 bytes of size, little-endian.
namespace shm {
inline constexpr std::size_t kTokenSize = 16;
std::string make_token(std::uint64_t size);
/// The size in a peer's token. Errors: protocol.
Result<std::uint64_t> parse_token(std::string_view token);
}  // namespace shm

}  // namespace stagewire
