// NodeCore: puts the parts of a node together and carries events between them: sessions and frames to the
// Lender and the Reader, their answers to the sessions, deaths and expiries to both. The parts are the loop
// thread's; what callers on other threads may touch is marked. Owned by Node.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <stagewire/base/config.h>
#include <stagewire/base/metrics.h>
#include <stagewire/node/node.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/worker.h"
#include "memory/block_cache.h"
#include "memory/copy.h"
#include "node/claim_book.h"
#include "node/directory.h"
#include "node/lease_table.h"
#include "node/lender.h"
#include "node/mailbox.h"
#include "node/peers.h"
#include "node/reader.h"
#include "node/seams.h"
#include "session/sessions.h"
#include "transport/transport.h"
#include "transport/verbs/verbs_transport.h"

namespace stagewire {

class TcpTransport;

class NodeCore final : public SessionHandler, public LenderOutput, public PeersOutput, public ReaderOutput {
 public:
  static Result<std::unique_ptr<NodeCore>> create(NodeConfig config, Seams seams);
  ~NodeCore() override;
  NodeCore(const NodeCore&) = delete;
  NodeCore& operator=(const NodeCore&) = delete;

  // Any thread (core_put.cc, core_get.cc, core.cc).
  Result<Ticket> put(const Key& key, const Payload& payload, PutOptions options);
  Result<Ticket> put_in_place(const Key& key, const Payload& payload,
                              std::vector<std::shared_ptr<Buffer>> buffers, PutOptions options);
  Result<Ticket> put_in_regions(const Key& key, const Payload& payload,
                                const std::vector<std::shared_ptr<Region>>& regions, PutOptions options);
  Result<std::shared_ptr<Region>> register_region(const void* data, std::uint64_t size,
                                                  RegionOptions options);
  bool withdraw(const Key& key, std::uint64_t generation);
  std::uint64_t withdraw_prefix(const std::string& name_space, const std::string& prefix);
  std::uint64_t withdraw_everywhere(const std::string& name_space, const std::string& key);
  Result<Got> get(const Source& source, GetOptions options);
  std::vector<GetHandle> get_async(const std::vector<Source>& sources,
                                   const std::vector<GetOptions>& options);
  void start_connecting(const std::string& address, std::function<void(const Status&)> done);
  Result<std::string> listen(const std::string& address);
  bool unlisten(const std::string& address);
  std::vector<std::string> addresses() const;
  NodeStats stats();
  std::string metrics_text();
  std::string explain();
  void close();

  const NodeId& id() const noexcept { return id_; }
  const NodeConfig& config() const noexcept { return config_; }
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  bool connected(const std::string& address) const { return directory_.has(address); }
  const std::shared_ptr<Pool>& publish_pool() const noexcept { return publish_pool_; }
  const std::shared_ptr<Pool>& receive_pool() const noexcept { return receive_pool_; }
  /// `forked` or `closed`, if it is.
  Status check_usable() const;

  /// Takes a region back (core_region.cc); its uses end when nothing reads it any more. Loop thread.
  void drop_region(std::uint32_t id, EndReason reason);

  // SessionHandler.
  void on_up(const std::shared_ptr<Session>& session) override;
  Status on_frame(Session& session, wire::Frame& frame, Fd descriptor) override;
  void on_acknowledged(Session& session, std::chrono::nanoseconds sent, std::uint64_t lease_epoch) override;
  void on_down(const std::shared_ptr<Session>& session, const Error& error) override;
  Status on_data(Session& session, Fd socket, std::uint64_t index) override;
  std::uint64_t lease_epoch_for(const NodeId& peer) override;
  std::uint64_t known_epoch_of(const NodeId& peer) override;
  std::uint64_t settled_below(const NodeId& peer) override;

  // LenderOutput.
  void send(const NodeId& reader, wire::Frame frame) override;
  void send_lazily(const NodeId& reader, wire::Frame frame) override;
  void on_lease(LeaseId lease, const NodeId& reader, const Publication& publication) override;
  void on_lease_end(LeaseId lease) override;

  // PeersOutput.
  void on_peer_died(Peer& peer) override;
  void on_leases_expired(Peer& peer) override;
  bool has_leases(const NodeId& peer) override;

  // ReaderOutput.
  void send_to_lender(const NodeId& lender, wire::Frame frame) override;
  void send_to_lender_lazily(const NodeId& lender, wire::Frame frame) override;
  bool is_own_address(const std::string& address) const override;
  void connect(const std::string& address, Sessions::Connected connected) override;

 private:
  NodeCore(NodeConfig config, std::string secret);
  Status make_pools();
  Status make_transports();
  /// On the loop, whose state verbs is from the start; takes some milliseconds for opening a device.
  Status make_verbs(const VerbsTransport::OpenApi& open_verbs);
  Status start_listening();
  Result<Address> listen_on_loop(const Address& address);
  void update_endpoints();
  SessionsConfig sessions_config() const;

  Result<std::shared_ptr<Buffer>> allocate_for_put(const Key& key, std::uint64_t size,
                                                   const PutOptions& options);
  /// Where `length` bytes at an address lie in memory that peers may read.
  using Locate = std::function<std::optional<RemoteRange>(const std::byte* data, std::uint64_t length)>;
  /// `where` names in errors what `locate` looks in.
  Result<Ticket> publish_in_place(const Key& key, const Payload& payload, std::shared_ptr<SourceBody> body,
                                  const Locate& locate, std::string_view where, PutOptions options);
  Result<Ticket> publish(PublicationFacts facts, const PutOptions& options);
  static Error with_put(Error error, const Key& key);
  Result<std::uint32_t> add_region(ExportedMemory memory);
  bool has_regions(const std::vector<RemoteRange>& ranges) const;
  void drop_regions(EndReason reason);
  /// A get on its way: what its caller holds, and, where the claim could be written to a session at once, the
  /// operation and the session (which `flush` unset leaves to be flushed).
  struct BegunGet {
    std::shared_ptr<GetHandle::State> state;
    GetPtr get;
    std::shared_ptr<Session> session;
  };
  BegunGet begin_get(const Source& source, GetOptions options, bool flush);
  void dispatch_to_lender(const NodeId& reader, const wire::Frame& frame);
  Status dispatch_to_reader(const NodeId& lender, wire::Frame& frame);
  void arm_lender_timer();
  void refresh_gauges(const NodeStats& stats);
  /// By the reader's name.
  void set_view_ages(const std::map<std::string, std::chrono::nanoseconds>& ages);
  NodeStats stats_on_loop();
  std::string explain_on_loop();
  /// Runs `task` on the loop and waits for its result; nothing if the loop is closed or takes longer than 5
  /// s.
  template <typename T, typename F>
  std::optional<T> on_loop(F task);

  const NodeId id_ = NodeId::random();
  const NodeConfig config_;
  const std::string secret_;
  const std::string node_name_;
  const bool tcp_allowed_;
  ForkGuard fork_guard_;
  std::atomic<bool> closed_{false};
  std::mutex close_mutex_;
  std::chrono::nanoseconds spin_{0};
  std::atomic<std::uint64_t> next_generation_{1};

  std::shared_ptr<Logger> log_;
  Metrics metrics_;
  Counter& puts_ = metrics_.counter("stagewire_puts_total", "Payloads published");
  Counter& put_bytes_ = metrics_.counter("stagewire_put_bytes_total", "Tensor bytes published");
  std::shared_ptr<Pool> publish_pool_;
  std::shared_ptr<Pool> receive_pool_;
  std::shared_ptr<BlockCache> inline_blocks_ = BlockCache::make();
  std::unique_ptr<CopyEngine> engine_;
  LeaseTable lease_table_;
  ClaimBook book_;
  Directory directory_;
  mutable std::mutex addresses_mutex_;
  std::vector<std::string> addresses_;  // of listeners, guarded by addresses_mutex_
  std::vector<Address> bound_;          // the same, parsed; guarded likewise

  // The loop's.
  std::vector<std::unique_ptr<Transport>> transports_;
  TcpTransport* tcp_ = nullptr;
  std::vector<ExportedMemory> memories_;  // pools first, then regions in the order of their numbers
  std::uint32_t next_memory_;             // of regions; numbers are never used again
  Worker worker_{"sw-helper"};
  EventLoop loop_{"sw-loop"};
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<Lender> lender_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Sessions> sessions_;
  EventLoop::TimerId lender_timer_ = 0;
  Time lender_timer_at_{0};
  std::set<NodeId> mapped_by_;  // readers that may have this node's memory mapped when it closes
};

}  // namespace stagewire
