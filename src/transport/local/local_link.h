// The link of a node to itself. Loop thread; owned by the node.
#pragma once

#include <memory>

#include "transport/copy_reads.h"
#include "transport/local/local_transport.h"
#include "transport/transport.h"

namespace stagewire {

class LocalLink final : public Link {
 public:
  LocalLink(CopyEngine& engine, std::shared_ptr<const LocalTransport::Memories> memories, bool same_node);

  Viability viability(MemoryKind source, MemoryKind destination) const override;
  Status attach(ImportedMemory memory) override;
  Status on_message(std::string_view message) override;
  Result<View> view(std::span<const RemoteRange> from) override;
  ReadId read(ReadRequest request, ReadDone done) override;
  void abort(ReadId id, std::function<void()> settled) override;
  void close(std::function<void()> closed) override;

 private:
  std::shared_ptr<const LocalTransport::Memories> memories_;
  bool same_node_;
  CopyReads reads_;
};

}  // namespace stagewire
