// The transport within one process: publisher and reader share the memory itself. Views and reads come
// straight from the pool; a region, which its owner may want back, is copied. One per node, on the node's
// loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "memory/copy.h"
#include "transport/transport.h"

namespace stagewire {

class LocalTransport final : public Transport {
 public:
  /// `engine` must outlive the transport and its links.
  explicit LocalTransport(CopyEngine& engine);

  std::string_view name() const override { return "local"; }
  Viability viability() const override;
  int rank() const override { return 0; }
  std::string hello() const override { return {}; }
  Result<MemoryToken> export_memory(const ExportedMemory& memory) override;
  void forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) override;
  Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) override;
  void close() override;

  using Memories = std::unordered_map<std::uint32_t, ExportedMemory>;

 private:
  CopyEngine& engine_;
  std::shared_ptr<Memories> memories_;  // shared with the links, which look memories up in it
};

}  // namespace stagewire
