// The steps of a dial. See dialer.h.
#include "session/dialer.h"

#include <utility>

#include "session/socket.h"

namespace stagewire {

Dial::Dial(EventLoop& loop, Worker& worker, Address address, const DialConfig& config, Known known,
           Dialed dialed)
    : loop_(loop),
      worker_(worker),
      address_(std::move(address)),
      config_(config),
      known_(std::move(known)),
      dialed_(std::move(dialed)),
      deadline_(Deadline::in(config.timeout)) {
  start();
}

Dial::~Dial() {
  *alive_ = false;
}

void Dial::start() {
  const bool tcp_allowed = !config_.opening.secret.empty() || config_.opening.insecure;
  if (address_.kind == Address::Kind::unix_socket) {
    note_ = "a Unix socket was dialled";
    candidates_ = {address_};
    return try_next();
  }
  if (!tcp_allowed) {
    if (!is_local_host(address_.host)) {
      loop_.post([this, alive = alive_] {
        if (!*alive) return;
        finish(config_.opening.handshake(false).error().with_peer(address_.to_string()));
      });
      return;
    }
    Address by_port;
    by_port.kind = Address::Kind::unix_socket;
    by_port.path = unix_name_of_port(address_.port, config_.socket_dir);
    note_ = "no secret is configured: the Unix socket of the port, same user";
    candidates_ = {std::move(by_port)};
    return try_next();
  }
  worker_.post([this, alive = alive_, address = address_, &loop = loop_] {
    loop.post([this, alive, found = resolve(address)]() mutable {
      if (!*alive) return;
      if (!found.ok()) return finish(std::move(found).error());
      candidates_ = std::move(found).value();
      try_next();
    });
  });
}

void Dial::try_next() {
  if (next_candidate_ >= candidates_.size()) {
    Error error = last_error_.value_or(Error(ErrorKind::unreachable, "no address to try"));
    return finish(std::move(error).with_peer(address_.to_string()));
  }
  open(candidates_[next_candidate_++]);
}

void Dial::open(const Address& endpoint) {
  retire_steps();
  opening_ = Opening::dial(loop_, endpoint, config_.opening, deadline_,
                           [this, endpoint](Result<OpenedConnection> opened) mutable {
                             if (!opened.ok()) {
                               return fail_attempt(std::move(opened).error().with_peer(endpoint.to_string()));
                             }
                             greet(std::move(opened).value());
                           });
}

void Dial::greet(OpenedConnection opened) {
  greeting_ = std::make_unique<Greeting>(
      loop_, std::move(opened), nullptr, deadline_,
      [this](Result<GreetedConnection> greeted) { on_greeted(std::move(greeted)); });
}

void Dial::on_greeted(Result<GreetedConnection> greeted) {
  if (!greeted.ok()) return fail_attempt(std::move(greeted).error());
  GreetedConnection connection = std::move(greeted).value();
  if (over_tcp_) {
    // This is the Unix socket that the node at the TCP address named: only if that very node answered is it
    // "same host".
    if (connection.auth.peer != over_tcp_->auth.peer) {
      connection.connection->close();
      return keep_tcp("another node answered on the peer's Unix socket");
    }
    over_tcp_->connection->close();
    over_tcp_.reset();
    note_ = "same host, proven: the node at " + address_.to_string() + " answered on its Unix socket";
    return finish(DialedConnection{.greeted = std::move(connection), .route_note = note_});
  }
  if (address_.kind == Address::Kind::tcp && connection.connection->unix_socket()) {
    return finish(DialedConnection{.greeted = std::move(connection), .route_note = note_});
  }
  if (!connection.connection->unix_socket() && !known_(connection.auth.peer)) {
    return try_unix_upgrade(std::move(connection));
  }
  finish(DialedConnection{.greeted = std::move(connection), .route_note = note_});
}

void Dial::try_unix_upgrade(GreetedConnection over_tcp) {
  over_tcp_ = std::move(over_tcp);
  const wire::Welcome& welcome = over_tcp_->welcome;
  if (config_.boot_id.empty() || welcome.boot_id != config_.boot_id)
    return keep_tcp("the peer runs on another host");
  const Result<Address> unix_address = Address::parse("unix:" + welcome.unix_name);
  if (welcome.unix_name.empty() || !unix_address.ok()) return keep_tcp("the peer offers no Unix socket");
  open(*unix_address);
}

void Dial::keep_tcp(const std::string& why) {
  GreetedConnection connection = std::move(*over_tcp_);
  over_tcp_.reset();
  finish(DialedConnection{.greeted = std::move(connection), .route_note = "TCP: " + why});
}

void Dial::fail_attempt(Error error) {
  if (over_tcp_) {
    return keep_tcp("the peer runs under the same kernel, but its Unix socket cannot be used (" +
                    error.to_string() +
                    "); containers that share no network namespace need a common 'socket_dir'");
  }
  // The first candidate's failure is the telling one when a name has several addresses.
  if (!last_error_) last_error_ = std::move(error);
  try_next();
}

void Dial::finish(Result<DialedConnection> result) {
  if (!dialed_) return;
  Dialed dialed = std::exchange(dialed_, nullptr);
  retire_steps();
  dialed(std::move(result));
}

void Dial::retire_steps() {
  // Either may be on the stack below this call.
  loop_.post([opening = std::shared_ptr<Opening>(std::move(opening_)),
              greeting = std::shared_ptr<Greeting>(std::move(greeting_))] {});
}

}  // namespace stagewire
