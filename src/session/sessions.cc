// Establishing sessions, and the rule that leaves one per pair of nodes. See sessions.h.
//
// The rule. An initiator sends its welcome, which makes the session, only if it knows of no session with that
// node. So a responder that already has one sees one of three things: the peer has lost the old one (its
// welcome names it as its last session, or it was the initiator of the old one as well): the new one replaces
// it. Or both dialled at once and the welcomes crossed: the session dialled by the smaller node id stays, at
// both ends.
#include "session/sessions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fault_points.h"
#include "session/socket.h"

namespace stagewire {

namespace {
// Ended sessions remembered, to recognise them in a welcome. A peer beyond that falls back to the crossing
// rule.
constexpr std::size_t kMaxLastTags = 65536;

std::string bytes_of(const SessionTag& tag) {
  return std::string(reinterpret_cast<const char*>(tag.data()), tag.size());
}
}  // namespace

Sessions::Sessions(EventLoop& loop, Worker& worker, SessionsConfig config, SessionHandler& handler,
                   std::shared_ptr<Logger> log)
    : loop_(loop), worker_(worker), config_(std::move(config)), handler_(handler), log_(std::move(log)) {}

Sessions::~Sessions() = default;

Result<Address> Sessions::listen(const Address& address) {
  if (closed_) return Error(ErrorKind::closed, "the node is closed");
  STAGEWIRE_ASSIGN(
      std::unique_ptr<Listener> listener,
      Listener::create(
          loop_, address, config_.dial.opening, config_.limits, log_,
          {.on_control = [this](OpenedConnection opened) { on_control(std::move(opened)); },
           .on_data = [this](Fd socket, const DataHello& hello) { on_data(std::move(socket), hello); }}));
  listeners_.push_back(std::move(listener));
  return listeners_.back()->address();
}

bool Sessions::unlisten(const Address& address) {
  return std::erase_if(listeners_,
                       [&address](const auto& listener) { return listener->address() == address; }) != 0;
}

wire::Welcome Sessions::own_welcome(const NodeId& peer) {
  wire::Welcome welcome;
  welcome.node = config_.dial.opening.self;
  welcome.name = config_.name;
  welcome.boot_id = config_.dial.boot_id;
  welcome.unix_name = config_.unix_name;
  for (const auto& listener : listeners_) {
    if (listener->address().kind == Address::Kind::tcp && welcome.addresses.size() < wire::kMaxAddresses) {
      welcome.addresses.push_back(listener->address().to_string());
    }
  }
  welcome.lease_epoch = handler_.lease_epoch_for(peer);
  welcome.heartbeat_ms = static_cast<std::uint32_t>(config_.times.heartbeat / std::chrono::milliseconds(1));
  welcome.lease_ms = static_cast<std::uint32_t>(config_.times.lease / std::chrono::milliseconds(1));
  welcome.transports = config_.transports;
  if (const auto last = last_tags_.find(peer); last != last_tags_.end())
    welcome.last_session = bytes_of(last->second);
  return welcome;
}

void Sessions::on_control(OpenedConnection opened) {
  if (closed_) return;
  const wire::Welcome welcome = own_welcome(opened.auth.peer);
  const auto slot = greetings_.emplace(greetings_.end());
  *slot = std::make_unique<Greeting>(
      loop_, std::move(opened), &welcome, Deadline::in(config_.dial.timeout),
      [this, slot](Result<GreetedConnection> greeted) { on_accepted(slot, std::move(greeted)); });
}

void Sessions::on_accepted(std::list<std::unique_ptr<Greeting>>::iterator greeting,
                           Result<GreetedConnection> greeted) {
  loop_.post([done = std::shared_ptr<Greeting>(std::move(*greeting))] {});  // it is on the stack below
  greetings_.erase(greeting);
  if (!greeted.ok()) {
    // The usual end of a dial that moved to the Unix socket or found that it was not needed.
    log_->debug("an accepted connection did not become a session: " + greeted.error().to_string());
    return;
  }
  const bool unix_socket = greeted->connection->unix_socket();
  const std::string note =
      unix_socket ? "same host: the peer connected to this node's Unix socket" : "TCP: the peer connected so";
  if (Result<std::shared_ptr<Session>> session = establish(std::move(greeted).value(), note); !session.ok()) {
    log_->debug("an accepted connection did not become a session: " + session.error().to_string());
  }
}

void Sessions::on_data(Fd socket, const DataHello& hello) {
  if (closed_) return;
  loop_.reach(fault_point::kDataOpened);
  for (const auto& [peer, session] : sessions_) {
    if (session->tag() != hello.session) continue;
    if (!verify_data_hello(hello, session->key()) || !session->use_data_index(hello.index)) {
      log_->warn("refused a data connection that claims to belong to " + session->peer_label() +
                 ": its opening is not authentic or was used before");
      return;
    }
    if (const Status adopted = handler_.on_data(*session, std::move(socket), hello.index); !adopted.ok()) {
      log_->warn("refused a data connection of " + session->peer_label() + ": " +
                 adopted.error().to_string());
    }
    return;
  }
  log_->warn("refused a data connection that belongs to no session");
}

void Sessions::connect(const Address& address, Connected connected) {
  if (closed_) return connected(Error(ErrorKind::closed, "the node is closed"));
  if (auto session = at(address)) return connected(std::move(session));
  const std::string text = address.to_string();
  const auto [entry, fresh] = dialing_.try_emplace(text);
  entry->second.waiting.push_back(std::move(connected));
  if (!fresh) return;
  entry->second.dial = std::make_unique<Dial>(
      loop_, worker_, address, config_.dial, [this](const NodeId& node) { return find(node) != nullptr; },
      [this, text](Result<DialedConnection> dialed) { on_dialed(text, std::move(dialed)); });
}

void Sessions::on_dialed(const std::string& address, Result<DialedConnection> dialed) {
  const auto entry = dialing_.find(address);
  if (entry == dialing_.end()) return;
  // A dial may fail within its own constructor's caller: keep it alive until the stack is gone.
  loop_.post([done = std::shared_ptr<Dial>(std::move(entry->second.dial))] {});
  std::vector<Connected> waiting = std::move(entry->second.waiting);
  dialing_.erase(entry);
  Result<std::shared_ptr<Session>> outcome = Error(ErrorKind::internal, "unset");
  if (dialed.ok()) {
    const NodeId node = dialed->greeted.auth.peer;
    outcome = establish(std::move(dialed->greeted), std::move(dialed->route_note));
    if (outcome.ok()) found_at_[address] = node;
  } else {
    outcome = std::move(dialed).error();
  }
  for (Connected& connected : waiting) connected(outcome);
}

bool Sessions::incoming_wins(const Session& existing, const GreetedConnection& incoming) const {
  if (!existing.initiator())
    return true;  // both dialled by the peer, who would not dial while the old one is up for it
  if (incoming.welcome.last_session == bytes_of(existing.tag())) return true;
  return incoming.auth.peer < config_.dial.opening.self;
}

Result<std::shared_ptr<Session>> Sessions::establish(GreetedConnection greeted, std::string route_note) {
  const NodeId peer = greeted.auth.peer;
  const std::shared_ptr<Session> existing = find(peer);
  if (existing) {
    if (greeted.initiator) {
      greeted.connection->close();
      return existing;
    }
    if (!incoming_wins(*existing, greeted)) {
      static_cast<void>(greeted.connection->send(wire::Goodbye{
          .kind = ErrorKind::busy, .message = "both nodes dialled at once and the other session stays"}));
      greeted.connection->close();
      return Error(ErrorKind::busy, "both nodes dialled at once");
    }
    existing->drop();
    forget(*existing);
    handler_.on_down(existing, Error(ErrorKind::peer_lost, "the peer began a new session"));
  } else if (sessions_.size() >= config_.max_sessions) {
    static_cast<void>(greeted.connection->send(wire::Goodbye{
        .kind = ErrorKind::busy, .message = "this node has as many sessions as it may (max_sessions)"}));
    greeted.connection->close();
    return Error(ErrorKind::busy,
                 "there are already " + std::to_string(sessions_.size()) + " sessions (max_sessions)");
  }
  if (greeted.initiator) {
    loop_.reach(fault_point::kGreeted);
    STAGEWIRE_TRY(greeted.connection->send(own_welcome(peer)));
  }
  auto session = std::make_shared<Session>(
      loop_, std::move(greeted.connection), greeted.auth, greeted.initiator, greeted.started,
      std::move(greeted.welcome), std::move(greeted.peer_ip), std::move(route_note), config_.times, handler_);
  sessions_[peer] = session;
  session->start();
  return session;
}

std::shared_ptr<Session> Sessions::at(const Address& address) const {
  const auto found = found_at_.find(address.to_string());
  return found == found_at_.end() ? nullptr : find(found->second);
}

std::shared_ptr<Session> Sessions::find(const NodeId& peer) const {
  const auto found = sessions_.find(peer);
  return found == sessions_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Session>> Sessions::all() const {
  std::vector<std::shared_ptr<Session>> result;
  result.reserve(sessions_.size());
  for (const auto& [peer, session] : sessions_) result.push_back(session);
  return result;
}

void Sessions::forget(const Session& session) {
  const auto found = sessions_.find(session.peer());
  if (found == sessions_.end() || found->second.get() != &session) return;
  if (last_tags_.size() >= kMaxLastTags) last_tags_.erase(last_tags_.begin());
  last_tags_[session.peer()] = session.tag();
  const NodeId peer = session.peer();
  std::erase_if(found_at_, [&peer](const auto& entry) { return entry.second == peer; });
  sessions_.erase(found);
}

void Sessions::flush() {
  for (const auto& session : all()) session->flush();
}

void Sessions::close(const std::string& reason) {
  if (std::exchange(closed_, true)) return;
  listeners_.clear();
  dialing_.clear();
  greetings_.clear();
  for (const auto& session : all()) {
    static_cast<void>(session->send(wire::Goodbye{.kind = ErrorKind::closed, .message = reason}));
    session->drop();
  }
  sessions_.clear();
}

}  // namespace stagewire
