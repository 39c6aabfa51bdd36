// Links, lifelines and the two lease clocks of each peer. See peers.h.
#include "node/peers.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "base/clock.h"
#include "node/link_port.h"
#include "session/socket.h"

namespace stagewire {

namespace {
// A peer without session, leases or views is forgotten after this many lease periods: long after the last
// moment at which it could come back and ask for what a claim of its came to.
constexpr int kForgetAfterPeriods = 6;
}  // namespace

std::string to_string(const RoutePair& pair) {
  return to_string(pair.source) + (pair.region ? " region" : "") + " → " + to_string(pair.destination);
}

Peers::Peers(EventLoop& loop, const NodeConfig& config, const NodeId& self,
             std::vector<std::unique_ptr<Transport>>& transports, std::vector<ExportedMemory>& memories,
             std::shared_ptr<Mailbox> mailbox, PeersOutput& output, std::shared_ptr<Logger> log)
    : loop_(loop),
      config_(config),
      self_id_(self),
      transports_(transports),
      memories_(memories),
      mailbox_(std::move(mailbox)),
      output_(output),
      log_(std::move(log)),
      self_(&of(self)) {
  self_->is_self = true;
  self_->label = "this node";
  for (auto& transport : transports_) {
    if (transport->name() != "local") continue;
    PeerLink link;
    link.transport = transport.get();
    link.channel = std::make_unique<SelfPort>(self);
    Result<std::unique_ptr<Link>> connected = transport->connect(*link.channel, {});
    if (connected.ok()) {
      link.link = std::move(connected).value();
    } else {
      link.problem = connected.error().to_string();
    }
    for (const ExportedMemory& memory : memories_) {
      if (!link.link) break;
      const Status attached = link.link->attach(ImportedMemory{
          .memory = memory.memory, .size = memory.size, .kind = memory.kind, .token = {}, .descriptors = {}});
      if (!attached.ok()) link.problem = attached.error().to_string();
    }
    self_->links.push_back(std::move(link));
  }
}

Peers::~Peers() = default;

Peer* Peers::find(const NodeId& id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

Peer& Peers::of(const NodeId& id) {
  std::unique_ptr<Peer>& entry = peers_[id];
  if (!entry) {
    entry = std::make_unique<Peer>();
    entry->id = id;
    entry->label = "node " + id.brief();
    entry->as_lender = LenderLeaseClock(highest_epoch_);
  }
  return *entry;
}

bool Peers::transport_allowed(std::string_view name) const {
  const auto& routes = config_.routes;
  return std::any_of(routes.begin(), routes.end(),
                     [name](const std::string& route) { return route == "auto" || route == name; });
}

void Peers::on_up(const std::shared_ptr<Session>& session) {
  Peer& peer = of(session->peer());
  peer.label = session->peer_label();
  peer.session = session;
  peer.addresses.clear();
  if (session->same_host() && !session->peer_welcome().unix_name.empty()) {
    peer.addresses.push_back("unix:" + session->peer_welcome().unix_name);
  }
  for (const std::string& address : session->peer_welcome().addresses) peer.addresses.push_back(address);
  loop_.cancel(std::exchange(peer.expiry_timer, 0));
  peer.as_reader.set_period(std::chrono::milliseconds(session->peer_welcome().lease_ms));
  peer.as_reader.on_acknowledged(session->started(), session->peer_welcome().lease_epoch);
  peer.as_lender.on_heard(boottime_now());
  make_links(peer, session);
  for (const ExportedMemory& memory : memories_) announce_to(*session, memory);
  if (session->same_host()) {
    watch_process(peer, *session);
    send_lifeline(peer, *session);
  }
}

void Peers::make_links(Peer& peer, const std::shared_ptr<Session>& session) {
  close_links(peer);
  const auto& offered = session->peer_welcome().transports;
  for (auto& transport : transports_) {
    const auto hello = std::find_if(offered.begin(), offered.end(),
                                    [&](const auto& entry) { return entry.first == transport->name(); });
    if (hello == offered.end() || transport->name() == "local") continue;
    PeerLink link;
    link.transport = transport.get();
    link.channel =
        std::make_unique<LinkPort>(self_id_, std::string(transport->name()), session, [this, id = peer.id] {
          if (Peer* known = find(id)) known->routes.clear();
        });
    if (!transport_allowed(transport->name())) {
      link.problem = "not viable, because it is not among the configured routes";
    } else if (const Viability here = transport->viability(); !here.viable) {
      link.problem = here.reason;
    } else if (Result<std::unique_ptr<Link>> connected = transport->connect(*link.channel, hello->second);
               connected.ok()) {
      link.link = std::move(connected).value();
    } else {
      link.problem = connected.error().to_string();
    }
    peer.links.push_back(std::move(link));
  }
  peer.routes.clear();
  const auto preference = [this](const PeerLink& link) {
    const auto named = std::find(config_.routes.begin(), config_.routes.end(), link.transport->name());
    return std::pair(named - config_.routes.begin(), link.transport->rank());
  };
  std::sort(peer.links.begin(), peer.links.end(),
            [&](const PeerLink& a, const PeerLink& b) { return preference(a) < preference(b); });
}

void Peers::announce_to(Session& session, const ExportedMemory& memory) {
  for (auto& transport : transports_) {
    if (transport->name() == "local" || !transport->viability().viable) continue;
    if (memory.is_region() && !transport->can_fence()) continue;
    const Result<MemoryToken> token = transport->export_memory(memory);
    if (!token.ok()) {
      log_->warn("memory " + memory.name + " cannot be exported: " + token.error().to_string());
      continue;
    }
    if (!token->descriptors.empty() && !session.same_host())
      continue;  // of use to a process of this host alone
    static_cast<void>(session.send(wire::Memory{.memory = memory.memory,
                                                .size = memory.size,
                                                .kind = memory.kind,
                                                .transport = std::string(transport->name()),
                                                .token = token->token},
                                   token->descriptors.empty() ? -1 : token->descriptors.front()));
  }
}

void Peers::announce(const ExportedMemory& memory) {
  for (auto& [id, peer] : peers_) {
    if (peer->session) announce_to(*peer->session, memory);
  }
}

void Peers::announce_gone(std::uint32_t memory) {
  for (auto& [id, peer] : peers_) {
    if (peer->session) static_cast<void>(peer->session->send(wire::MemoryGone{.memory = memory}));
  }
}

void Peers::send_lifeline(Peer& peer, Session& session) {
  // Anew for each session: the peer may have forgotten this node meanwhile, or never have received the last
  // one.
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    log_->warn("no lifeline for " + peer.label + ": " + Error::from_errno(errno, "socketpair").message());
    return;
  }
  const Fd theirs(ends[1]);
  if (!peer.lifeline) peer.lifeline = std::make_shared<LifelineEnd>();
  peer.lifeline->fds.emplace_back(ends[0]);
  static_cast<void>(session.send(wire::Lifeline{}, theirs.get()));
}

void Peers::watch_process(Peer& peer, Session& session) {
  if (peer.pidfd_watch) return;
  peer.pidfd = peer_pidfd(session.socket());
  if (!peer.pidfd) return;
  peer.pidfd_watch = loop_.watch(peer.pidfd.get(), [this, id = peer.id] { on_death(id); }, [] {});
}

Status Peers::on_lifeline(Session& session, Fd descriptor) {
  if (!session.same_host() || !descriptor)
    return Error(ErrorKind::protocol, "a lifeline belongs to a Unix session and brings a descriptor");
  Peer& peer = of(session.peer());
  // Watched before the old one goes: a peer that sends a second one has lost nothing by it.
  peer.peer_lifeline_watch.reset();
  peer.peer_lifeline = std::move(descriptor);
  peer.peer_lifeline_watch = loop_.watch(
      peer.peer_lifeline.get(),
      [this, id = peer.id] {
        // Nobody writes to a lifeline: readable means that its other end is gone, in every process that had
        // it.
        const Peer* known = find(id);
        char byte = 0;
        if (known == nullptr || ::recv(known->peer_lifeline.get(), &byte, 1, MSG_DONTWAIT) != 0) return;
        on_death(id);
      },
      [] {});
  return {};
}

void Peers::on_death(const NodeId& id) {
  // A watch must not be destroyed from a task that captured the peer's entry by reference: look it up on the
  // next turn.
  loop_.post([this, id] {
    Peer* peer = find(id);
    if (peer == nullptr || peer->is_self) return;
    // What it said before its end counts, and may not have been read yet: the last of its reads are consumed.
    if (const auto session = peer->session) session->drain();
    peer = find(id);
    if (peer == nullptr) return;
    loop_.cancel(std::exchange(peer->expiry_timer, 0));
    if (peer->session) {
      // The socket's own hang-up is on its way; it must not find the peer's entry any more.
      peer->session->end(Error(ErrorKind::peer_lost, "the peer's process has ended, or its node was closed"));
      peer = find(id);
      if (peer == nullptr) return;
    }
    close_links(*peer);
    output_.on_peer_died(*peer);
    peers_.erase(id);
  });
}

void Peers::on_down(const Session& session) {
  Peer* peer = find(session.peer());
  if (peer == nullptr || peer->session.get() != &session) return;
  peer->session.reset();
  close_links(*peer);
  start_expiry(*peer);
}

void Peers::start_expiry(Peer& peer) {
  loop_.cancel(peer.expiry_timer);
  const auto due = peer.as_lender.heard() + config_.lease - boottime_now();
  peer.expiry_timer =
      loop_.call_at(Deadline::in(std::max<std::chrono::nanoseconds>(due, std::chrono::nanoseconds(0))),
                    [this, id = peer.id] { on_expiry(id); });
}

void Peers::on_expiry(const NodeId& id) {
  Peer* peer = find(id);
  if (peer == nullptr) return;
  peer->expiry_timer = 0;
  if (peer->session) return;
  const auto silent = boottime_now() - peer->as_lender.heard();
  if (output_.has_leases(id)) {
    if (!peer->death_is_visible()) {
      // First, so that the reader cannot believe in a lease whose memory is reused.
      peer->as_lender.raise_epoch(++highest_epoch_);
      output_.on_leases_expired(*peer);
    }
  } else if (silent >= kForgetAfterPeriods * config_.lease && peer->lifeline.use_count() <= 1) {
    output_.on_peer_died(*peer);
    peers_.erase(id);
    return;
  }
  peer->expiry_timer = loop_.call_at(Deadline::in(config_.lease), [this, id] { on_expiry(id); });
}

void Peers::on_acknowledged(Session& session, std::chrono::nanoseconds sent, std::uint64_t epoch) {
  Peer* peer = find(session.peer());
  if (peer == nullptr || peer->session.get() != &session) return;
  // The lifeline was sent before any heartbeat: what acknowledges one has seen the other.
  if (peer->lifeline && peer->lifeline->fds.size() > 1 && sent > session.started()) {
    peer->lifeline->fds.erase(peer->lifeline->fds.begin(), peer->lifeline->fds.end() - 1);
  }
  if (peer->as_reader.on_acknowledged(sent, epoch)) {
    log_->warn("the leases held at " + peer->label +
               " have expired: it had heard nothing from this node for too long");
  }
}

void Peers::on_heard(Session& session) {
  Peer* peer = find(session.peer());
  if (peer != nullptr) peer->as_lender.on_heard(session.heard());
}

PeerLink* Peers::link_named(Peer& peer, std::string_view transport) {
  const auto found = std::find_if(peer.links.begin(), peer.links.end(), [transport](const PeerLink& link) {
    return link.transport->name() == transport;
  });
  return found == peer.links.end() ? nullptr : &*found;
}

Status Peers::on_memory(Session& session, wire::Memory frame, Fd descriptor) {
  Peer& peer = of(session.peer());
  PeerLink* link = link_named(peer, frame.transport);
  if (link == nullptr || !link->link) return {};  // a transport that this node has not, or does not use
  peer.routes.clear();
  ImportedMemory memory{.memory = frame.memory,
                        .size = frame.size,
                        .kind = frame.kind,
                        .token = std::move(frame.token),
                        .descriptors = {}};
  if (descriptor) memory.descriptors.push_back(std::move(descriptor));
  if (const Status attached = link->link->attach(std::move(memory)); !attached.ok()) {
    link->problem = attached.error().to_string();
    log_->warn("memory " + std::to_string(frame.memory) + " of " + peer.label + " cannot be used over " +
               frame.transport + ": " + link->problem);
  }
  return {};
}

void Peers::on_memory_gone(Session& session, std::uint32_t memory) {
  for (PeerLink& link : of(session.peer()).links) {
    if (link.link) link.link->detach(memory);
  }
}

Status Peers::on_transport_message(Session& session, const wire::TransportMessage& frame) {
  Peer& peer = of(session.peer());
  PeerLink* link = link_named(peer, frame.transport);
  if (link == nullptr || !link->link) return {};
  peer.routes.clear();
  return link->link->on_message(frame.message);
}

Status Peers::on_data(Session& session, Fd socket, std::uint64_t index) {
  PeerLink* link = link_named(of(session.peer()), "tcp");
  if (link == nullptr || !link->link) {
    return Error(ErrorKind::not_viable,
                 "tcp is not used with this peer" + (link != nullptr ? ": " + link->problem : std::string()));
  }
  return link->link->adopt(std::move(socket), index);
}

const Route& Peers::route(Peer& peer, const RoutePair& pair) {
  for (const auto& [known, route] : peer.routes) {
    if (known == pair) return route;
  }
  return peer.routes.emplace_back(pair, choose_route(peer, pair, {})).second;
}

Route Peers::route_without(Peer& peer, const RoutePair& pair, std::span<const std::string> failed) {
  return choose_route(peer, pair, failed);
}

Route Peers::choose_route(Peer& peer, const RoutePair& pair, std::span<const std::string> failed) {
  Route route;
  for (PeerLink& link : peer.links) {
    RouteCandidate candidate{
        .transport = std::string(link.transport->name()), .viable = false, .reason = link.problem};
    if (link.link) {
      const Viability viability = link.link->viability(pair.source, pair.destination);
      candidate.viable = viability.viable;
      candidate.reason = viability.reason;
    }
    if (pair.region && !link.transport->can_fence()) {
      candidate.viable = false;
      candidate.reason = "not viable, because the owner of a region could not take it back from it";
    }
    if (std::find(failed.begin(), failed.end(), candidate.transport) != failed.end()) {
      candidate.viable = false;
      candidate.reason = "this read has failed over it already";
    }
    if (candidate.viable && route.link == nullptr) {
      route.link = link.link.get();
      route.transport = candidate.transport;
    }
    route.considered.push_back(std::move(candidate));
  }
  const std::string what = to_string(pair);
  if (failed.empty() && peer.announced_routes.insert(what + " " + route.transport).second) {
    std::string line =
        "route from " + peer.label + ", " + what + ": " + (route.link != nullptr ? route.transport : "none");
    for (const RouteCandidate& candidate : route.considered) {
      line += "; " + candidate.transport + ": " + candidate.reason;
    }
    log_->info(line);
  }
  return route;
}

void Peers::close_links(Peer& peer) {
  for (PeerLink& link : peer.links) {
    if (!link.link) continue;
    const auto entry = closing_links_.insert(closing_links_.end(), std::move(link));
    entry->link->close([mailbox = mailbox_, this, entry] {
      // The link is on the stack here; it is destroyed on the loop's next turn.
      mailbox->post([this, entry] {
        closing_links_.erase(entry);
        if (closing_links_.empty() && all_closed_) std::exchange(all_closed_, nullptr)();
      });
    });
  }
  peer.links.clear();
  peer.routes.clear();
}

void Peers::close(std::function<void()> closed) {
  for (auto& [id, peer] : peers_) {
    loop_.cancel(std::exchange(peer->expiry_timer, 0));
    close_links(*peer);
    peer->session.reset();
    peer->lifeline.reset();  // views that live on hold it themselves
    peer->peer_lifeline_watch.reset();
    peer->pidfd_watch.reset();
  }
  if (closing_links_.empty()) return closed();
  all_closed_ = std::move(closed);
}

}  // namespace stagewire
