// LeaseTable: which bytes which reader may be sent now. Written by the loop, asked by the data threads before
// each chunk (DESIGN: the sender checks the lease before each chunk and holds its reference until send has
// returned). Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "node/publication.h"
#include "transport/transport.h"

namespace stagewire {

class LeaseTable final : public SourceAccess {
 public:
  /// What ranges of this memory's id lie in.
  void add_memory(const ExportedMemory& memory);
  void remove_memory(std::uint32_t memory);

  void add(LeaseId lease, const NodeId& reader, const PublicationFacts& facts);
  void remove(LeaseId lease);

  Result<SourcePin> pin(const NodeId& reader, std::uint64_t lease, const RemoteRange& range) override;

 private:
  struct Entry {
    NodeId reader;
    std::vector<RemoteRange> ranges;  // by memory and offset, none overlapping
    std::shared_ptr<SourceBody> body;
  };
  std::mutex mutex_;
  std::unordered_map<LeaseId, Entry> leases_;
  std::unordered_map<std::uint32_t, ExportedMemory> memories_;
};

}  // namespace stagewire
