// The exchange of welcomes. See greeting.h.
#include "session/greeting.h"

#include <utility>

#include "session/socket.h"

namespace stagewire {

Greeting::Greeting(EventLoop& loop, OpenedConnection opened, const wire::Welcome* own_welcome,
                   Deadline deadline, Greeted greeted)
    : loop_(loop), greeted_(std::move(greeted)) {
  Connection::Options options;
  options.unix_socket = opened.unix_socket;
  if (opened.mode != AuthMode::user) {
    options.outgoing.emplace(opened.auth.key, opened.initiator);
    options.incoming.emplace(opened.auth.key, !opened.initiator);
  }
  greeted_connection_.peer_ip = opened.unix_socket ? std::string() : stagewire::peer_ip(opened.socket.get());
  greeted_connection_.auth = opened.auth;
  greeted_connection_.initiator = opened.initiator;
  greeted_connection_.started = opened.started;
  greeted_connection_.connection =
      std::make_shared<Connection>(loop, std::move(opened.socket), std::move(options));
  timer_ = loop_.call_at(deadline, [this] {
    timer_ = 0;
    finish(Error(ErrorKind::deadline_exceeded, "the peer authenticated itself but sent no welcome in time"));
  });
  greeted_connection_.connection->start(
      {.on_frame = [this](wire::Frame& frame, const Fd&) { return on_frame(frame); },
       .on_closed = [this](Error error) { finish(std::move(error)); }});
  if (own_welcome != nullptr) static_cast<void>(greeted_connection_.connection->send(*own_welcome));
}

Greeting::~Greeting() {
  loop_.cancel(timer_);
  if (greeted_connection_.connection) greeted_connection_.connection->close();
}

Status Greeting::on_frame(wire::Frame& frame) {
  if (auto* goodbye = std::get_if<wire::Goodbye>(&frame)) {
    // "closed" would be about this node.
    return Error(goodbye->kind == ErrorKind::closed ? ErrorKind::peer_lost : goodbye->kind,
                 "the peer refused: " + goodbye->message);
  }
  auto* welcome = std::get_if<wire::Welcome>(&frame);
  if (welcome == nullptr) return Error(ErrorKind::protocol, "the first frame is not a welcome");
  if (welcome->node != greeted_connection_.auth.peer) {
    return Error(ErrorKind::protocol, "the welcome names another node than the handshake");
  }
  greeted_connection_.welcome = std::move(*welcome);
  // Frames behind the welcome belong to the session: hand the connection over before they are taken.
  greeted_connection_.connection->detach();
  finish(std::move(greeted_connection_));
  return {};
}

void Greeting::finish(Result<GreetedConnection> result) {
  loop_.cancel(std::exchange(timer_, 0));
  if (!greeted_) return;
  Greeted greeted = std::exchange(greeted_, nullptr);
  greeted(std::move(result));
}

}  // namespace stagewire
