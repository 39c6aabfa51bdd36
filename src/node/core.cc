// Construction, the wiring of events and the end of a node. See core.h; puts are in core_put.cc, gets in
// core_get.cc, what a node tells about itself in core_explain.cc.
#include "node/core.h"

#include <algorithm>
#include <fstream>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/oneshot.h"
#include "node/on_loop.h"
#include "session/socket.h"
#include "transport/tcp/tcp_transport.h"

namespace stagewire {

namespace {

// `settled` lets a reader forget a claim and nothing else, so that it need not hurry.
constexpr std::chrono::milliseconds kSettledFlush{50};
constexpr std::uint32_t kPublishPoolId = 1;
constexpr std::uint32_t kReceivePoolId = 2;
constexpr std::uint32_t kFirstRegionId = 16;

unsigned usable_cpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

Result<std::string> load_secret(const NodeConfig& config) {
  if (!config.secret.empty()) return parse_secret(config.secret);
  if (config.secret_file.empty()) return std::string();
  std::ifstream file(config.secret_file, std::ios::binary);
  // Larger than any secret in hex; a whole disk image given by mistake is not read.
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0) {
    return Error(ErrorKind::config, "secret_file '" + config.secret_file +
                                        "' cannot be read or is empty; "
                                        "'stagewire keygen' makes a secret");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_secret(text);
}

std::string name_or_pid(const NodeConfig& config) {
  return config.name.empty() ? "pid " + std::to_string(::getpid()) : config.name;
}

}  // namespace

Result<std::unique_ptr<NodeCore>> NodeCore::create(NodeConfig config, Seams seams) {
  STAGEWIRE_TRY(validate(config));
  STAGEWIRE_ASSIGN(std::string secret, load_secret(config));
  std::unique_ptr<NodeCore> core(new NodeCore(std::move(config), std::move(secret)));
  STAGEWIRE_TRY(core->loop_.ready());
  core->loop_.on_reach(std::move(seams.reached));
  STAGEWIRE_TRY(core->make_pools());
  STAGEWIRE_TRY(core->make_transports());
  const std::optional<Status> listening =
      core->on_loop<Status>([raw = core.get(), open_verbs = std::move(seams.open_verbs)]() -> Status {
        STAGEWIRE_TRY(raw->make_verbs(open_verbs));
        return raw->start_listening();
      });
  if (!listening) return Error(ErrorKind::internal, "the event loop did not start");
  if (!listening->ok()) return listening->error();
  return core;
}

NodeCore::NodeCore(NodeConfig config, std::string secret)
    : config_(std::move(config)),
      secret_(std::move(secret)),
      node_name_(name_or_pid(config_)),
      tcp_allowed_(!secret_.empty() || config_.insecure),
      spin_(usable_cpus() > 1 ? config_.spin : std::chrono::nanoseconds(0)),
      log_(Logger::create(node_name_, parse_log_level(config_.log_level).value())),
      engine_(std::make_unique<CopyEngine>(config_.copy_threads)),
      next_memory_(kFirstRegionId),
      mailbox_(std::make_shared<Mailbox>(loop_)) {}

NodeCore::~NodeCore() {
  if (fork_guard_.forked()) {
    // Everything here belongs to the parent. The parts with threads know it themselves; connections must send
    // nothing.
    static_cast<void>(sessions_.release());
    static_cast<void>(peers_.release());
    static_cast<void>(reader_.release());
    static_cast<void>(lender_.release());
    for (auto& transport : transports_) static_cast<void>(transport.release());
    static_cast<void>(engine_.release());
    return;
  }
  close();
  // Not when it is closed: until here their owners may still wait for it.
  if (lender_) lender_->forsake(mapped_by_);
}

Status NodeCore::check_usable() const {
  STAGEWIRE_TRY(fork_guard_.check());
  if (closed()) return Error(ErrorKind::closed, "the node is closed");
  return {};
}

Status NodeCore::make_pools() {
  STAGEWIRE_ASSIGN(publish_pool_, Pool::create({.name = "publish pool",
                                                .use = PoolUse::publish,
                                                .kind = MemoryKind::host(),
                                                .size = config_.publish_pool_size,
                                                .huge_pages = config_.huge_pages,
                                                .touch_in_background = config_.touch_pools}));
  STAGEWIRE_ASSIGN(receive_pool_, Pool::create({.name = "receive pool",
                                                .use = PoolUse::receive,
                                                .kind = MemoryKind::host(),
                                                .size = config_.receive_pool_size,
                                                .huge_pages = config_.huge_pages,
                                                .touch_in_background = config_.touch_pools}));
  publish_pool_->set_id(kPublishPoolId);
  receive_pool_->set_id(kReceivePoolId);
  memories_.push_back(ExportedMemory::of(kPublishPoolId, publish_pool_));
  lease_table_.add_memory(memories_.back());
  return {};
}

SessionsConfig NodeCore::sessions_config() const {
  SessionsConfig config;
  config.dial.opening = {.self = id_, .secret = secret_, .insecure = config_.insecure};
  config.dial.socket_dir = config_.socket_dir;
  config.dial.boot_id = boot_id();
  config.dial.timeout = config_.handshake_timeout;
  config.name = node_name_;
  config.unix_name = unix_name_of_node(id_.hex(), config_.socket_dir);
  config.times = {.heartbeat = config_.heartbeat, .lease = config_.lease};
  config.max_sessions = config_.max_sessions;
  config.limits.max_unauthenticated = config_.max_unauthenticated;
  config.limits.opening_timeout = config_.opening_timeout;
  return config;
}

Status NodeCore::start_listening() {
  lender_ = std::make_unique<Lender>(
      *this, LenderLimits{.max_waiting_claims = config_.max_waiting_claims,
                          .max_view_bytes = publish_pool_->size() / 100 * config_.view_share_percent});
  peers_ = std::make_unique<Peers>(loop_, config_, id_, transports_, memories_, mailbox_, *this, log_);
  reader_ = std::make_unique<Reader>(loop_, config_, *peers_, book_, receive_pool_, mailbox_, *this, metrics_,
                                     log_);
  sessions_ = std::make_unique<Sessions>(loop_, worker_, sessions_config(), *this, log_);
  if (!config_.socket_dir.empty()) remove_stale_sockets(config_.socket_dir);
  Address own;
  own.kind = Address::Kind::unix_socket;
  own.path = unix_name_of_node(id_.hex(), config_.socket_dir);
  for (const std::string& text : config_.listen) {
    STAGEWIRE_ASSIGN(const Address address, Address::parse(text));
    STAGEWIRE_ASSIGN(const Address bound, listen_on_loop(address));
    static_cast<void>(bound);
  }
  // Last: tickets name the addresses that work from everywhere first.
  STAGEWIRE_ASSIGN(const Address bound, listen_on_loop(own));
  static_cast<void>(bound);
  return {};
}

// Without a secret nothing listens on TCP: a port then stands for the Unix socket of that name, and port 0
// for none.
Result<Address> NodeCore::listen_on_loop(const Address& address) {
  Address bound = address;
  if (address.kind == Address::Kind::tcp && !tcp_allowed_) {
    if (!is_local_host(address.host)) {
      return Error(ErrorKind::auth_failed,
                   "cannot listen on " + address.to_string() +
                       ": TCP needs a secret (stagewire keygen) or an explicit 'insecure: true'");
    }
    if (address.port == 0) return bound;
    Address by_port;
    by_port.kind = Address::Kind::unix_socket;
    by_port.path = unix_name_of_port(address.port, config_.socket_dir);
    if (Result<Address> listening = sessions_->listen(by_port); !listening.ok())
      return std::move(listening).error();
  } else {
    STAGEWIRE_ASSIGN(bound, sessions_->listen(address));
  }
  {
    const std::lock_guard lock(addresses_mutex_);
    bound_.push_back(bound);
    addresses_.push_back(bound.to_string());
  }
  update_endpoints();
  return bound;
}

void NodeCore::update_endpoints() {
  std::vector<TcpEndpoint> endpoints;
  for (const auto& listener : sessions_->listeners()) {
    const Address& address = listener->address();
    if (address.kind != Address::Kind::tcp) continue;
    const bool wildcard = address.host == "0.0.0.0" || address.host == "::";
    endpoints.push_back(TcpEndpoint{.ip = wildcard ? std::string() : address.host, .port = address.port});
  }
  tcp_->set_endpoints(std::move(endpoints));
  std::vector<std::pair<std::string, std::string>> hellos;
  for (const auto& transport : transports_) {
    if (transport->name() != "local") hellos.emplace_back(transport->name(), transport->hello());
  }
  sessions_->set_transports(std::move(hellos));
}

Result<std::string> NodeCore::listen(const std::string& address) {
  STAGEWIRE_TRY(check_usable());
  STAGEWIRE_ASSIGN(const Address parsed, Address::parse(address));
  auto bound = on_loop<Result<Address>>([this, parsed] { return listen_on_loop(parsed); });
  if (!bound) return Error(ErrorKind::closed, "the node is closed");
  if (!bound->ok()) return std::move(bound->error().with_operation("listen"));
  return (*bound)->to_string();
}

bool NodeCore::unlisten(const std::string& address) {
  const Result<Address> parsed = Address::parse(address);
  if (!parsed.ok() || !check_usable().ok()) return false;
  return on_loop<bool>([this, wanted = *parsed] {
           Address listener = wanted;
           if (wanted.kind == Address::Kind::tcp && !tcp_allowed_) {
             listener.kind = Address::Kind::unix_socket;
             listener.path = unix_name_of_port(wanted.port, config_.socket_dir);
           }
           if (!sessions_->unlisten(listener)) return false;
           {
             const std::lock_guard lock(addresses_mutex_);
             std::erase(bound_, wanted);
             std::erase(addresses_, wanted.to_string());
           }
           update_endpoints();
           return true;
         })
      .value_or(false);
}

std::vector<std::string> NodeCore::addresses() const {
  if (!config_.advertise.empty()) return config_.advertise;
  const std::lock_guard lock(addresses_mutex_);
  return addresses_;
}

bool NodeCore::is_own_address(const std::string& address) const {
  const Result<Address> parsed = Address::parse(address);
  if (!parsed.ok()) return false;
  const std::lock_guard lock(addresses_mutex_);
  return std::any_of(bound_.begin(), bound_.end(), [&parsed](const Address& own) {
    if (own == *parsed) return true;
    if (own.kind != Address::Kind::tcp || parsed->kind != Address::Kind::tcp || own.port != parsed->port)
      return false;
    const bool wildcard = own.host == "0.0.0.0" || own.host == "::";
    return (wildcard && is_local_host(parsed->host)) ||
           (parsed->host == "localhost" && own.host == "127.0.0.1");
  });
}

// --- Sessions → parts.

void NodeCore::on_up(const std::shared_ptr<Session>& session) {
  loop_.reach(fault_point::kSessionUp);
  log_->info("session with " + session->peer_label() + " is up; " + session->route_note());
  directory_.add(session);
  peers_->on_up(session);
  reader_->on_peer_up(session->peer());
}

Status NodeCore::on_frame(Session& session, wire::Frame& frame, Fd descriptor) {
  peers_->on_heard(session);
  if (auto* memory = std::get_if<wire::Memory>(&frame))
    return peers_->on_memory(session, std::move(*memory), std::move(descriptor));
  if (const auto* gone = std::get_if<wire::MemoryGone>(&frame)) {
    reader_->on_memory_gone(session.peer(), gone->memory);
    peers_->on_memory_gone(session, gone->memory);
    return {};
  }
  if (const auto* message = std::get_if<wire::TransportMessage>(&frame)) {
    loop_.reach(fault_point::kTransportMessage);
    return peers_->on_transport_message(session, *message);
  }
  if (std::holds_alternative<wire::Lifeline>(frame))
    return peers_->on_lifeline(session, std::move(descriptor));
  if (const auto* beat = std::get_if<wire::Heartbeat>(&frame)) {
    lender_->on_settled_below(session.peer(), beat->settled_below);
    return {};
  }
  if (std::holds_alternative<wire::Grant>(frame) || std::holds_alternative<wire::Refuse>(frame) ||
      std::holds_alternative<wire::Settled>(frame)) {
    return dispatch_to_reader(session.peer(), frame);
  }
  dispatch_to_lender(session.peer(), frame);
  return {};
}

void NodeCore::dispatch_to_lender(const NodeId& reader, const wire::Frame& frame) {
  const Time now = boottime_now();
  if (const auto* claim = std::get_if<wire::Claim>(&frame)) {
    loop_.reach(fault_point::kClaimReceived);
    lender_->on_claim(reader, *claim, now);
  } else if (const auto* cancel = std::get_if<wire::CancelClaim>(&frame)) {
    lender_->on_cancel(reader, *cancel, now);
  } else if (const auto* consumed = std::get_if<wire::Consumed>(&frame)) {
    loop_.reach(fault_point::kConsumedReceived);
    lender_->on_consumed(reader, *consumed, now);
  } else if (const auto* release = std::get_if<wire::Release>(&frame)) {
    lender_->on_release(reader, *release, now);
  }
  arm_lender_timer();
}

Status NodeCore::dispatch_to_reader(const NodeId& lender, wire::Frame& frame) {
  if (auto* grant = std::get_if<wire::Grant>(&frame)) {
    loop_.reach(fault_point::kGrantReceived);
    return reader_->on_grant(lender, std::move(*grant));
  }
  if (const auto* refuse = std::get_if<wire::Refuse>(&frame)) {
    reader_->on_refuse(lender, *refuse);
  } else if (const auto* settled = std::get_if<wire::Settled>(&frame)) {
    loop_.reach(fault_point::kSettledReceived);
    reader_->on_settled(lender, *settled);
  }
  return {};
}

void NodeCore::on_acknowledged(Session& session, std::chrono::nanoseconds sent, std::uint64_t lease_epoch) {
  peers_->on_acknowledged(session, sent, lease_epoch);
}

void NodeCore::on_down(const std::shared_ptr<Session>& session, const Error& error) {
  log_->info("session with " + session->peer_label() + " is down: " + error.to_string());
  directory_.remove(*session);
  sessions_->forget(*session);
  peers_->on_down(*session);
  lender_->on_reader_away(session->peer());
  if (!closed()) reader_->on_peer_away(session->peer());
}

Status NodeCore::on_data(Session& session, Fd socket, std::uint64_t index) {
  return peers_->on_data(session, std::move(socket), index);
}

std::uint64_t NodeCore::lease_epoch_for(const NodeId& peer) {
  const Peer* known = peers_->find(peer);
  return known != nullptr ? known->as_lender.epoch() : peers_->highest_epoch();
}

std::uint64_t NodeCore::known_epoch_of(const NodeId& peer) {
  const Peer* known = peers_->find(peer);
  return known != nullptr ? known->as_reader.epoch() : 0;
}

std::uint64_t NodeCore::settled_below(const NodeId& peer) {
  return book_.settled_below(peer);
}

// --- Parts → sessions. This node is its own peer by way of its own loop.

void NodeCore::send(const NodeId& reader, wire::Frame frame) {
  if (reader == id_) {
    loop_.post(
        [this, frame = std::move(frame)]() mutable { static_cast<void>(dispatch_to_reader(id_, frame)); });
    return;
  }
  if (const auto session = sessions_->find(reader)) static_cast<void>(session->send(frame));
}

void NodeCore::send_lazily(const NodeId& reader, wire::Frame frame) {
  if (reader == id_) return send(reader, std::move(frame));
  if (const auto session = sessions_->find(reader)) session->send_lazily(std::move(frame), kSettledFlush);
}

void NodeCore::send_to_lender(const NodeId& lender, wire::Frame frame) {
  if (lender == id_) {
    loop_.post([this, frame = std::move(frame)] { dispatch_to_lender(id_, frame); });
    return;
  }
  if (const auto session = sessions_->find(lender)) static_cast<void>(session->send(frame));
}

void NodeCore::send_to_lender_lazily(const NodeId& lender, wire::Frame frame) {
  if (lender == id_) return send_to_lender(lender, std::move(frame));
  if (const auto session = sessions_->find(lender)) session->send_lazily(std::move(frame));
}

void NodeCore::connect(const std::string& address, Sessions::Connected connected) {
  Result<Address> parsed = Address::parse(address);
  if (!parsed.ok()) return connected(std::move(parsed).error());
  sessions_->connect(*parsed, [this, address, connected = std::move(connected)](
                                  Result<std::shared_ptr<Session>> session) mutable {
    if (session.ok()) directory_.add(address, *session);
    connected(std::move(session));
  });
}

// --- Leases.

void NodeCore::on_lease(LeaseId lease, const NodeId& reader, const Publication& publication) {
  lease_table_.add(lease, reader, publication.facts());
  loop_.reach(fault_point::kLeaseMade);
}

void NodeCore::on_lease_end(LeaseId lease) {
  lease_table_.remove(lease);
}

void NodeCore::on_peer_died(Peer& peer) {
  lender_->forget_reader(peer.id, boottime_now());
  arm_lender_timer();
  if (!closed()) reader_->on_peer_died(peer.id);
}

void NodeCore::on_leases_expired(Peer& peer) {
  log_->warn("the leases of " + peer.label + " have expired: nothing was heard from it for " +
             std::to_string(config_.lease / std::chrono::milliseconds(1)) + " ms");
  metrics_
      .counter("stagewire_lease_expiries_total", "Readers whose leases were expired because they were silent")
      .add();
  lender_->on_reader_gone(peer.id, boottime_now());
  arm_lender_timer();
}

bool NodeCore::has_leases(const NodeId& peer) {
  return lender_->has_leases(peer);
}

void NodeCore::arm_lender_timer() {
  const std::optional<Time> next = lender_->next_time();
  if (!next || (lender_timer_ != 0 && lender_timer_at_ <= *next))
    return;  // an early call finds nothing due and comes back here
  loop_.cancel(lender_timer_);
  lender_timer_at_ = *next;
  const Time in = std::max(*next - boottime_now(), Time(0));
  lender_timer_ = loop_.call_at(Deadline::in(in), [this] {
    lender_timer_ = 0;
    lender_->on_time(boottime_now());
    arm_lender_timer();
  });
}

// --- The end.

void NodeCore::close() {
  if (fork_guard_.forked() || loop_.on_loop_thread()) return;
  const std::lock_guard lock(close_mutex_);
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  publish_pool_ ? publish_pool_->close() : void();
  receive_pool_ ? receive_pool_->close() : void();
  Oneshot<bool> done = Oneshot<bool>::make();
  auto promise = std::make_shared<OneshotPromise<bool>>(std::move(done.promise));
  loop_.post([this, promise] {
    if (!sessions_) {
      promise->set(true);
      return;
    }
    for (const auto& [id, peer] : peers_->all()) {
      if (peer->death_is_visible()) mapped_by_.insert(id);
    }
    drop_regions(EndReason::closed);
    lender_->withdraw_all(EndReason::closed, boottime_now());
    reader_->close(Error(ErrorKind::closed, "the node was closed"), [this, promise] {
      // Before the lifelines go: what was consumed must be known when they do.
      sessions_->flush();
      peers_->close([this, promise] {
        sessions_->close("the node was closed");
        promise->set(true);
      });
    });
  });
  // Reads that a transport cannot end within the grace keep their destinations alive by themselves.
  if (loop_.ready().ok() &&
      !done.future.wait(Deadline::in(config_.abort_grace + std::chrono::seconds(1))).ok()) {
    log_->error("closed without all reads being proven over");
  }
  mailbox_->close();
  directory_.clear();
  loop_.stop();  // before the transports, whose state is the loop's
  for (auto& transport : transports_) transport->close();
  worker_.stop();
  book_.close();  // whoever still waits learns that the node is closed
}

}  // namespace stagewire
