// Heartbeats and the dispatch of a session's own frames. See session.h.
#include "session/session.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace stagewire {

namespace {
// More data connections than any configuration opens (16) over many reconnects, and a bound on what we
// remember.
constexpr std::size_t kMaxDataIndexes = 4096;

std::uint64_t as_wire(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count());
}
}  // namespace

Session::Session(EventLoop& loop, std::shared_ptr<Connection> connection, const HandshakeResult& auth,
                 bool initiator, std::chrono::nanoseconds started, wire::Welcome peer_welcome,
                 std::string peer_ip, std::string route_note, const SessionTimes& times,
                 SessionHandler& handler)
    : loop_(loop),
      connection_(std::move(connection)),
      auth_(auth),
      initiator_(initiator),
      started_(started),
      peer_welcome_(std::move(peer_welcome)),
      peer_ip_(std::move(peer_ip)),
      peer_label_((peer_welcome_.name.empty() ? std::string("node") : peer_welcome_.name) + " (" +
                  auth_.peer.brief() + ")"),
      route_note_(std::move(route_note)),
      times_(times),
      beats_(times.heartbeat),
      handler_(handler),
      heard_(boottime_now()) {}

Session::~Session() = default;

void Session::start() {
  up_ = true;
  connection_->start(
      {.on_frame = [this](wire::Frame& frame, Fd fd) { return on_frame(frame, std::move(fd)); },
       .on_closed = [this](Error error) { on_closed(std::move(error)); }});
  handler_.on_up(shared_from_this());
  if (up_) heartbeat(false);
}

void Session::heartbeat(bool with_peers) {
  const auto now = boottime_now();
  // A stopped process on this host is not a dead one; its death shows on its own socket. Over a network
  // silence is all there is to tell death by.
  if (!same_host() && now - heard_ >= times_.lease) {
    return end(Error(ErrorKind::peer_lost, "nothing was heard from the peer for a whole lease period"));
  }
  static_cast<void>(send(wire::Heartbeat{.sent_ns = as_wire(now),
                                         .lease_epoch = handler_.known_epoch_of(peer()),
                                         .settled_below = handler_.settled_below(peer())}));
  if (!up_) return;
  const auto next = with_peers ? beats_.sent_with_peers(now) : beats_.sent(now);
  loop_.cancel(timer_);
  timer_ = loop_.call_at(Deadline::in(next), [this] { heartbeat(false); });
}

Status Session::on_frame(wire::Frame& frame, Fd descriptor) {
  heard_ = boottime_now();
  if (const auto* beat = std::get_if<wire::Heartbeat>(&frame)) {
    // The claims it settles are the node's business too.
    STAGEWIRE_TRY(handler_.on_frame(*this, frame, Fd()));
    STAGEWIRE_TRY(
        send(wire::HeartbeatAck{.sent_ns = beat->sent_ns, .lease_epoch = handler_.lease_epoch_for(peer())}));
    if (beats_.joins_peers(heard_)) heartbeat(true);
    return {};
  }
  if (const auto* ack = std::get_if<wire::HeartbeatAck>(&frame)) {
    const std::chrono::nanoseconds sent(static_cast<std::int64_t>(ack->sent_ns));
    if (sent > heard_) return Error(ErrorKind::protocol, "a heartbeat was acknowledged before it was sent");
    handler_.on_acknowledged(*this, sent, ack->lease_epoch);
    return {};
  }
  if (std::holds_alternative<wire::Welcome>(frame)) return Error(ErrorKind::protocol, "a second welcome");
  if (auto* goodbye = std::get_if<wire::Goodbye>(&frame)) {
    return Error(goodbye->kind == ErrorKind::closed ? ErrorKind::peer_lost : goodbye->kind,
                 "the peer ended the session: " + goodbye->message);
  }
  return handler_.on_frame(*this, frame, std::move(descriptor));
}

void Session::on_closed(Error error) {
  if (!std::exchange(up_, false)) return;
  loop_.cancel(std::exchange(timer_, 0));
  const auto self = shared_from_this();
  handler_.on_down(self, error.with_peer(peer_label_));
}

void Session::end(Error error) {
  if (!up_) return;
  static_cast<void>(
      send(wire::Goodbye{.kind = error.kind(), .message = error.message().substr(0, wire::kMaxErrorText)}));
  const auto self = shared_from_this();
  connection_->close();
  on_closed(std::move(error));
}

void Session::drop() {
  if (!std::exchange(up_, false)) return;
  loop_.cancel(std::exchange(timer_, 0));
  connection_->close();
}

bool Session::use_data_index(std::uint64_t index) {
  if (used_indexes_.size() >= kMaxDataIndexes) return false;
  if (std::find(used_indexes_.begin(), used_indexes_.end(), index) != used_indexes_.end()) return false;
  used_indexes_.push_back(index);
  return true;
}

}  // namespace stagewire
