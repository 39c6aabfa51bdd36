// One peer's memories, mapped into this process. Loop thread; owned by the node. The mappings are shared with
// the views made from them and outlive the link as long as any view does.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "memory/memfd.h"
#include "transport/copy_reads.h"
#include "transport/transport.h"

namespace stagewire {

class ShmLink final : public Link {
 public:
  /// Descriptors and address space are finite, and how many a peer announces is its choice.
  static constexpr std::size_t kMaxMemories = 64;

  ShmLink(CopyEngine& engine, bool same_host);

  Viability viability(MemoryKind source, MemoryKind destination) const override;
  Status attach(ImportedMemory memory) override;
  Status on_message(std::string_view message) override;
  Result<View> view(std::span<const RemoteRange> from) override;
  ReadId read(ReadRequest request, ReadDone done) override;
  void abort(ReadId id, std::function<void()> settled) override;
  void close(std::function<void()> closed) override;

 private:
  // Mapped pointers of some ranges and what keeps them mapped.
  struct Resolved {
    std::vector<MappedRange> ranges;
    std::shared_ptr<const void> hold;
  };
  Result<Resolved> resolve(std::span<const RemoteRange> from) const;

  bool same_host_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const ImportedMapping>> memories_;
  CopyReads reads_;
};

}  // namespace stagewire
