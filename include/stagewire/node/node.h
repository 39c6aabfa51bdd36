// Node: one process taking part. Publishes payloads for other nodes to claim, and gets theirs. Owns its
// listening addresses, sessions, pools, transports and metrics. Thread-safe: every method may be called from
// any thread, except from within a callback of stagewire where noted. A forked child's copy answers
// everything with `forked`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <stagewire/base/config.h>
#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>
#include <stagewire/memory/pool.h>
#include <stagewire/node/got.h>
#include <stagewire/node/options.h>
#include <stagewire/node/region.h>
#include <stagewire/node/ticket.h>
#include <stagewire/payload/payload.h>

namespace stagewire {

/// What a node currently holds; for health checks and tests.
struct NodeStats {
  std::uint64_t published = 0;       ///< publications not yet freed
  std::uint64_t leases = 0;          ///< lent to readers
  std::uint64_t waiting_claims = 0;  ///< of peers, for keys not there yet
  std::uint64_t running_gets = 0;
  std::uint64_t sessions = 0;
  std::uint64_t views = 0;         ///< alive in this process
  std::uint64_t quarantined = 0;   ///< destinations held because a read could not be proven over
  std::uint64_t regions = 0;       ///< registered and not closed
  std::uint64_t region_bytes = 0;  ///< of all regions together
  PoolStats publish_pool;
  PoolStats receive_pool;
};

class NodeCore;
struct NodeMaker;

class Node {
 public:
  /// Starts a node: event loop, pools, transports, listeners. Takes < 50 ms; pool memory is touched in the
  /// background. Errors: config, io (a port in use), auth_failed.
  static Result<std::shared_ptr<Node>> create(NodeConfig config);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const NodeId& id() const noexcept;
  /// Listening addresses, the first being what tickets name first.
  std::vector<std::string> addresses() const;
  /// Listens on one more address ("host:port", port 0 lets the kernel choose; "unix:@name"); returns it with
  /// the real port.
  Result<std::string> listen(const std::string& address);
  /// Stops listening on an address that listen() returned; sessions made through it stay. False if it was not
  /// listening there.
  bool unlisten(const std::string& address);
  /// Whether `address` leads to this node itself.
  bool is_own(const std::string& address) const;

  // Publishing.

  /// Copies the payload's tensors into the publish pool and publishes it under `key`, replacing what is
  /// there. Returns when the copy is made: the caller's memory is its own again. Errors: invalid_argument,
  /// pool_exhausted, too_large, closed.
  Result<Ticket> put(const Key& key, const Payload& payload, PutOptions options = {});
  /// Publishes tensors that already lie in `buffers` of the publish pool, without a copy. The publication
  /// holds the buffers until it ends; the caller may hold them too, and reuses them only after
  /// PutOptions::released was called. Every tensor must be contiguous and lie in one of the buffers. Errors:
  /// invalid_argument, closed.
  Result<Ticket> put_in_place(const Key& key, const Payload& payload,
                              std::vector<std::shared_ptr<Buffer>> buffers, PutOptions options = {});
  /// Registers memory of the caller's own, to publish from in place. It must stay mapped until the region is
  /// closed, or as long as RegionOptions::hold is kept. Returns before RDMA adapters have registered it (what
  /// they refuse is read over tcp). Errors: invalid_argument, not_viable (device memory), busy (too many
  /// regions), closed.
  Result<std::shared_ptr<Region>> register_region(const void* data, std::uint64_t size,
                                                  RegionOptions options = {});
  /// Publishes tensors that lie in `regions`, without a copy: as put_in_place. The caller must not write to
  /// them until PutOptions::released was called, or the region is closed. Peers read them over verbs or tcp
  /// and get no views. Errors: invalid_argument, closed.
  Result<Ticket> put_in_regions(const Key& key, const Payload& payload,
                                const std::vector<std::shared_ptr<Region>>& regions, PutOptions options = {});
  /// Withdraws what is published under `key` (any generation, or just that of a ticket). False if there was
  /// nothing.
  bool withdraw(const Key& key, std::uint64_t generation = 0);
  /// Withdraws all keys of a namespace that begin with `prefix`; returns how many.
  std::uint64_t withdraw_prefix(const std::string& name_space, const std::string& prefix);
  /// Withdraws a key on every edge of a namespace; returns how many.
  std::uint64_t withdraw_everywhere(const std::string& name_space, const std::string& key);

  // Getting.

  /// Waits for the payload. Errors: deadline_exceeded, replaced, cancelled, expired, consumed,
  /// peer_restarted, peer_lost, lease_lost, unreachable, auth_failed, not_found, pool_exhausted, too_large,
  /// destination_held, closed, ….
  Result<Got> get(const Source& source, GetOptions options);
  /// The same without waiting.
  GetHandle get_async(const Source& source, GetOptions options);
  /// Many at once, in one round trip per peer where the sessions are up; as many options as sources, or else
  /// every one fails with invalid_argument.
  std::vector<GetHandle> get_many_async(const std::vector<Source>& sources,
                                        const std::vector<GetOptions>& options);
  std::vector<Result<Got>> get_many(const std::vector<Source>& sources,
                                    const std::vector<GetOptions>& options);
  /// Starts connecting to an address, if no session is up; never waits. `done`, if given, is told the outcome
  /// once, on a thread of the node or before this returns; it must not block.
  void connect(const std::string& address, std::function<void(const Status&)> done = {});
  /// Whether a session to the node at this address, as it was given to connect() or get(), is up.
  bool connected(const std::string& address) const;

  const std::shared_ptr<Pool>& publish_pool() const noexcept;
  const std::shared_ptr<Pool>& receive_pool() const noexcept;

  NodeStats stats() const;
  /// Prometheus text of everything that is counted.
  std::string metrics_text() const;
  /// For people: the node, its pools, each peer with its session and the route per memory kind with the
  /// reasons.
  std::string explain() const;
  const NodeConfig& config() const noexcept;

  /// Withdraws everything, fails what runs with `closed`, says goodbye. Waits at most the abort grace for
  /// running reads to settle. Views stay valid. Idempotent.
  void close();
  bool closed() const noexcept;

 private:
  friend struct NodeMaker;
  explicit Node(std::unique_ptr<NodeCore> core);
  std::unique_ptr<NodeCore> core_;
};

}  // namespace stagewire
