// One peer over data connections: reads from it (PeerReads) and what it reads from here (ServeConnections).
// Loop thread; owned by the node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/tcp/data_threads.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/peer_reads.h"
#include "transport/tcp/tcp_options.h"
#include "transport/transport.h"

namespace stagewire {

class ServeConnection;
/// The connections over which peers read from this node; those that have ended are swept out now and then.
/// Loop thread.
using ServedConnections = std::vector<std::weak_ptr<ServeConnection>>;

/// Which indices of data connections have been used. Indices come roughly in order, so a window of the last
/// 64 is enough: older ones count as used.
class UsedIndices {
 public:
  /// Marks `index` as used. False if it was already, or is too old to tell.
  bool use(std::uint64_t index) noexcept;

 private:
  std::uint64_t next_ = 0;  // one above the highest index used
  std::uint64_t seen_ = 0;  // bit i: index next_ - 1 - i was used
};

class TcpLink final : public Link {
 public:
  /// `all_served`: of all links of the transport.
  TcpLink(const TcpOptions& options, DataThreads& threads, SourceAccess& source, LinkChannel& channel,
          std::vector<SocketAddress> addresses, std::shared_ptr<ServedConnections> all_served);

  Viability viability(MemoryKind source, MemoryKind destination) const override;
  Status attach(ImportedMemory memory) override;
  void detach(std::uint32_t memory) override { memories_.erase(memory); }
  Status on_message(std::string_view message) override;
  Result<View> view(std::span<const RemoteRange> from) override;
  ReadId read(ReadRequest request, ReadDone done) override;
  void abort(ReadId id, std::function<void()> settled) override;
  Status adopt(Fd connection, std::uint64_t index) override;
  void close(std::function<void()> closed) override;

 private:
  const TcpOptions options_;
  DataThreads& threads_;
  SourceAccess& source_;
  LinkChannel& channel_;
  bool dialable_;
  std::unordered_map<std::uint32_t, std::uint64_t> memories_;  // id, size in bytes
  std::shared_ptr<PeerReads> reads_;
  std::uint64_t next_hello_ = 0;

  UsedIndices used_;
  std::shared_ptr<std::atomic<std::size_t>> live_;
  ServedConnections served_;
  std::shared_ptr<ServedConnections> all_served_;
  bool closed_ = false;
};

}  // namespace stagewire
