// Peers: what this node knows of each other node beyond one session: its links (one per transport), the
// clocks of leases in both directions, and on one host the lifelines and the pidfd that tell its death. Loop
// thread only; owned by the node.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <stagewire/base/config.h>
#include <stagewire/base/node_id.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "node/mailbox.h"
#include "session/lease_clock.h"
#include "session/session.h"
#include "transport/transport.h"

namespace stagewire {

/// Our ends of the socket pairs whose other ends the peer, as a lender, watches. Held by the peer's entry and
/// by every view of its memory: the kernel closes them when this process ends, whatever happens, and nobody
/// closes them earlier. The last one is the one that counts; older ones stay until the peer has certainly
/// taken over the last.
struct LifelineEnd {
  std::vector<Fd> fds;
};

/// A link with what it needs.
struct PeerLink {
  Transport* transport = nullptr;
  std::unique_ptr<LinkChannel> channel;
  std::unique_ptr<Link> link;  ///< null if connecting failed; `problem` says why
  std::string problem;
};

/// What a route is chosen for: from the peer's memory into ours.
struct RoutePair {
  MemoryKind source = MemoryKind::host();
  MemoryKind destination = MemoryKind::host();
  bool region = false;  ///< the source is a region, and its owner must be able to take it back
  friend bool operator==(const RoutePair&, const RoutePair&) = default;
};
std::string to_string(const RoutePair& pair);

/// One way that was considered for such a pair.
struct RouteCandidate {
  std::string transport;
  bool viable = false;
  std::string reason;
};
struct Route {
  Link* link = nullptr;  ///< null: no way
  std::string transport;
  std::vector<RouteCandidate> considered;
};

struct Peer {
  NodeId id;
  std::string label;
  bool is_self = false;
  std::shared_ptr<Session> session;  ///< null while away, and for this node itself
  std::vector<PeerLink> links;       ///< in order of preference
  /// Routes as they were chosen last; empty again whenever something of a link changes.
  std::vector<std::pair<RoutePair, Route>> routes;
  ReaderLeaseClock as_reader;  ///< of our leases at this peer
  LenderLeaseClock as_lender;  ///< of its leases here
  std::shared_ptr<LifelineEnd> lifeline;
  Fd peer_lifeline;
  Fd pidfd;
  std::unique_ptr<FdWatch> peer_lifeline_watch;
  std::unique_ptr<FdWatch> pidfd_watch;
  EventLoop::TimerId expiry_timer = 0;
  std::vector<std::string> addresses;  ///< where it said it can be reached, the same host's way first
  std::set<std::string> announced_routes;
  std::set<std::string> announced_fallbacks;

  /// Whether the end of its process will be seen here, so that its leases need no clock.
  bool death_is_visible() const noexcept { return is_self || peer_lifeline_watch || pidfd_watch; }
};

/// What Peers tells the node.
class PeersOutput {
 public:
  virtual ~PeersOutput() = default;
  /// The peer's process has ended. The entry goes after this call.
  virtual void on_peer_died(Peer& peer) = 0;
  /// The peer has been silent for a lease period (the epoch is raised already).
  virtual void on_leases_expired(Peer& peer) = 0;
  virtual bool has_leases(const NodeId& peer) = 0;
};

class Peers {
 public:
  Peers(EventLoop& loop, const NodeConfig& config, const NodeId& self,
        std::vector<std::unique_ptr<Transport>>& transports, std::vector<ExportedMemory>& memories,
        std::shared_ptr<Mailbox> mailbox, PeersOutput& output, std::shared_ptr<Logger> log);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  Peer* find(const NodeId& id);
  Peer& self() { return *self_; }
  /// The epoch that a reader without an entry would get. Epochs of one node never go down, whichever readers
  /// are forgotten.
  std::uint64_t highest_epoch() const noexcept { return highest_epoch_; }
  /// The entry of a peer, made on first need.
  Peer& of(const NodeId& id);
  const std::map<NodeId, std::unique_ptr<Peer>>& all() const noexcept { return peers_; }

  void on_up(const std::shared_ptr<Session>& session);
  void on_down(const Session& session);
  void on_acknowledged(Session& session, std::chrono::nanoseconds sent, std::uint64_t epoch);
  /// A sign of life.
  void on_heard(Session& session);
  Status on_memory(Session& session, wire::Memory frame, Fd descriptor);
  void on_memory_gone(Session& session, std::uint32_t memory);
  Status on_transport_message(Session& session, const wire::TransportMessage& frame);
  Status on_lifeline(Session& session, Fd descriptor);
  Status on_data(Session& session, Fd socket, std::uint64_t index);

  /// Tells everyone of a memory that is new, and of one that is gone.
  void announce(const ExportedMemory& memory);
  void announce_gone(std::uint32_t memory);

  /// The transport for moving bytes; logged at first use.
  const Route& route(Peer& peer, const RoutePair& pair);
  /// As route(), for a read that has failed over the transports named in `failed`; not kept.
  Route route_without(Peer& peer, const RoutePair& pair, std::span<const std::string> failed);
  /// The peer's link over this transport, or null.
  Link* link(Peer& peer, std::string_view transport) {
    PeerLink* found = link_named(peer, transport);
    return found == nullptr ? nullptr : found->link.get();
  }

  /// Closes all links; `closed` runs on the loop when each has settled its reads.
  void close(std::function<void()> closed);

 private:
  void make_links(Peer& peer, const std::shared_ptr<Session>& session);
  void announce_to(Session& session, const ExportedMemory& memory);
  void send_lifeline(Peer& peer, Session& session);
  void watch_process(Peer& peer, Session& session);
  void close_links(Peer& peer);
  void start_expiry(Peer& peer);
  void on_expiry(const NodeId& id);
  void on_death(const NodeId& id);
  Route choose_route(Peer& peer, const RoutePair& pair, std::span<const std::string> failed);
  bool transport_allowed(std::string_view name) const;
  PeerLink* link_named(Peer& peer, std::string_view transport);

  EventLoop& loop_;
  const NodeConfig& config_;
  NodeId self_id_;
  std::vector<std::unique_ptr<Transport>>& transports_;
  std::vector<ExportedMemory>& memories_;
  std::shared_ptr<Mailbox> mailbox_;
  PeersOutput& output_;
  std::shared_ptr<Logger> log_;
  std::map<NodeId, std::unique_ptr<Peer>> peers_;
  std::uint64_t highest_epoch_ = 1;
  Peer* self_ = nullptr;  // of the map; made with what stands above
  std::list<PeerLink> closing_links_;
  std::function<void()> all_closed_;
};

}  // namespace stagewire
