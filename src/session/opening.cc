// The two kinds of opening share a reader of exactly n bytes and a deadline. See opening.h.
#include "session/opening.h"

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/fault_points.h"
#include "session/socket.h"

namespace stagewire {

namespace {

constexpr std::size_t kReplySize = kHelloSize + kProofSize;

// The common part: socket, watch, deadline, a buffer that fills up to a wanted size.
class OpeningBase : public Opening {
 public:
  OpeningBase(EventLoop& loop, Fd socket, bool unix_socket, Deadline deadline, Opened opened)
      : loop_(loop), socket_(std::move(socket)), unix_socket_(unix_socket), opened_(std::move(opened)) {
    timer_ = loop_.call_at(deadline, [this] {
      timer_ = 0;
      finish(Error(ErrorKind::deadline_exceeded, "the peer did not complete the handshake in time"));
    });
  }
  ~OpeningBase() override { loop_.cancel(timer_); }
  OpeningBase(const OpeningBase&) = delete;
  OpeningBase& operator=(const OpeningBase&) = delete;

 protected:
  virtual Status on_bytes(std::string bytes) = 0;
  virtual Status on_connected() { return {}; }
  virtual Error closed_early(std::string_view received) {
    std::string text = "the peer closed the connection during the handshake";
    if (!received.empty()) text += ", having sent " + describe_foreign_bytes(received);
    // A node that has no place for us now, or one that ends, says nothing: unlike after a refused connection,
    // trying again may help. Whatever else listens there will be the same next time.
    return Error(received.empty() ? ErrorKind::peer_lost : ErrorKind::unreachable, std::move(text));
  }

  void watch_reads() {
    watch_ = loop_.watch(socket_.get(), [this] { on_readable(); }, [this] { on_writable(); });
  }
  void want_write() { watch_->want_write(); }
  void expect(std::size_t size) {
    wanted_ = size;
    received_.clear();
  }

  // Everything sent here is under 200 bytes on a fresh socket: it fits the buffer or the socket is broken.
  Status send(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    return Error(ErrorKind::peer_lost, "the connection broke during the handshake");
  }

  // Same-user Unix sockets are trusted on the kernel's word alone.
  Status check_user(AuthMode mode) const {
    if (mode != AuthMode::user) return {};
    const auto credentials = peer_credentials(socket_.get());
    if (credentials && credentials->uid == ::geteuid()) return {};
    return Error(ErrorKind::auth_failed,
                 "the process at the other end belongs to user id " +
                     (credentials ? std::to_string(credentials->uid) : std::string("(unknown)")) +
                     ", this node to " + std::to_string(::geteuid()) +
                     "; without a secret only processes of one user talk to each other: " +
                     "configure the same secret at both (stagewire keygen)");
  }

  // Ends this opening. Its owner may destroy it in the callback, so nothing of it is touched afterwards.
  void finish(Result<OpenedConnection> result) {
    watch_.reset();
    loop_.cancel(std::exchange(timer_, 0));
    if (!opened_) return;
    Opened opened = std::exchange(opened_, nullptr);
    opened(std::move(result));
  }
  void finish_with(const HandshakeResult& auth, AuthMode mode, bool initiator) {
    watch_.reset();
    finish(OpenedConnection{.socket = std::move(socket_),
                            .auth = auth,
                            .mode = mode,
                            .unix_socket = unix_socket_,
                            .initiator = initiator,
                            .started = started_});
  }
  Fd take_socket() {
    watch_.reset();
    loop_.cancel(std::exchange(timer_, 0));
    return std::move(socket_);
  }
  int fd() const { return socket_.get(); }
  void reach(std::string_view point) const { loop_.reach(point); }
  bool unix_socket() const { return unix_socket_; }
  bool finished() const { return !opened_; }

 private:
  void on_writable() {
    if (const Status status = on_connected(); !status.ok()) finish(status.error());
  }

  void on_readable() {
    if (wanted_ == 0) return;
    std::string chunk(wanted_ - received_.size(), '\0');
    const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return finish(Error(ErrorKind::peer_lost, Error::from_errno(errno, "handshake").message()));
    if (got == 0) return finish(closed_early(received_));
    received_.append(chunk, 0, static_cast<std::size_t>(got));
    if (received_.size() < wanted_) return;
    wanted_ = 0;
    if (const Status status = on_bytes(std::exchange(received_, {})); !status.ok()) finish(status.error());
  }

  EventLoop& loop_;
  Fd socket_;
  bool unix_socket_;
  Opened opened_;
  EventLoop::TimerId timer_ = 0;
  std::unique_ptr<FdWatch> watch_;
  std::size_t wanted_ = 0;
  std::string received_;
  std::chrono::nanoseconds started_ = boottime_now();
};

class DialOpening final : public OpeningBase {
 public:
  DialOpening(EventLoop& loop, Fd socket, bool unix_socket, HandshakeConfig config, Deadline deadline,
              Opened opened)
      : OpeningBase(loop, std::move(socket), unix_socket, deadline, std::move(opened)),
        mode_(config.mode),
        handshake_(std::move(config)) {
    watch_reads();
    want_write();
  }

 private:
  Status on_connected() override {
    if (const int error = connect_error(fd()); error != 0) {
      return Error(ErrorKind::unreachable,
                   "cannot connect: " + Error::from_errno(error, "connect").message());
    }
    STAGEWIRE_TRY(check_user(mode_));
    reach(fault_point::kDialled);
    expect(kReplySize);
    return send(handshake_.hello());
  }

  Status on_bytes(std::string bytes) override {
    Result<std::string> proof = handshake_.on_reply(bytes);
    if (!proof.ok()) {
      // Best effort: lets the responder name the cause instead of a closed connection.
      if (proof.error().kind() == ErrorKind::auth_failed) {
        static_cast<void>(send(InitiatorHandshake::rejection()));
      }
      return std::move(proof).error();
    }
    STAGEWIRE_TRY(send(*proof));
    reach(fault_point::kProofSent);
    finish_with(handshake_.result(), mode_, true);
    return {};
  }

  AuthMode mode_;
  InitiatorHandshake handshake_;
};

class AcceptOpening final : public OpeningBase {
 public:
  AcceptOpening(EventLoop& loop, Fd socket, bool unix_socket, HandshakeConfig config, Deadline deadline,
                Opened opened, DataOpened data)
      : OpeningBase(loop, std::move(socket), unix_socket, deadline, std::move(opened)),
        mode_(config.mode),
        handshake_(std::move(config)),
        data_(std::move(data)) {
    expect(kHelloSize);
    watch_reads();
  }

 private:
  Status on_bytes(std::string bytes) override {
    if (bytes.size() == kHelloSize) return on_hello(bytes);
    reach(fault_point::kProofReceived);
    STAGEWIRE_ASSIGN(const HandshakeResult result, handshake_.on_proof(bytes));
    finish_with(result, mode_, false);
    return {};
  }

  Error closed_early(std::string_view received) override {
    return replied_ ? handshake_.closed_before_proof() : OpeningBase::closed_early(received);
  }

  Status on_hello(const std::string& bytes) {
    STAGEWIRE_ASSIGN(const HelloPurpose purpose, peek_purpose(bytes));
    if (purpose == HelloPurpose::data) {
      STAGEWIRE_ASSIGN(const DataHello hello, parse_data_hello(bytes));
      DataOpened data = std::exchange(data_, nullptr);
      data(take_socket(), hello);
      return {};
    }
    STAGEWIRE_TRY(check_user(mode_));
    reach(fault_point::kHelloReceived);
    std::string refusal;
    Result<std::string> reply = handshake_.on_hello(bytes, refusal);
    if (!reply.ok()) {
      if (!refusal.empty())
        static_cast<void>(send(refusal));  // best effort: it only improves the peer's error text
      return std::move(reply).error();
    }
    expect(kProofSize);
    replied_ = true;
    return send(*reply);
  }

  AuthMode mode_;
  ResponderHandshake handshake_;
  DataOpened data_;
  bool replied_ = false;
};

// An opening that failed before it began: reports on the next turn of the loop, as all others do.
class FailedOpening final : public Opening {
 public:
  FailedOpening(EventLoop& loop, Error error, Opened opened) : loop_(loop), opened_(std::move(opened)) {
    timer_ = loop_.call_at(Deadline::now(), [this, error = std::move(error)]() mutable {
      timer_ = 0;
      Opened callback = std::exchange(opened_, nullptr);
      callback(std::move(error));
    });
  }
  ~FailedOpening() override { loop_.cancel(timer_); }
  FailedOpening(const FailedOpening&) = delete;
  FailedOpening& operator=(const FailedOpening&) = delete;

 private:
  EventLoop& loop_;
  Opened opened_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace

Result<HandshakeConfig> OpeningConfig::handshake(bool unix_socket) const {
  HandshakeConfig config;
  config.self = self;
  config.secret = secret;
  if (!secret.empty()) {
    config.mode = AuthMode::secret;
  } else if (unix_socket) {
    config.mode = AuthMode::user;
  } else if (insecure) {
    config.mode = AuthMode::insecure;
  } else {
    return Error(
        ErrorKind::auth_failed,
        "TCP needs a secret (make one with 'stagewire keygen' and give it to both nodes) or an explicit "
        "'insecure: true'; without either only processes of the same user on the same host can connect");
  }
  return config;
}

std::unique_ptr<Opening> Opening::dial(EventLoop& loop, const Address& endpoint, const OpeningConfig& config,
                                       Deadline deadline, Opened opened) {
  const bool unix_socket = endpoint.kind == Address::Kind::unix_socket;
  Result<HandshakeConfig> handshake = config.handshake(unix_socket);
  if (!handshake.ok()) {
    return std::make_unique<FailedOpening>(loop, std::move(handshake).error(), std::move(opened));
  }
  Result<Fd> socket = start_connect(endpoint);
  if (!socket.ok())
    return std::make_unique<FailedOpening>(loop, std::move(socket).error(), std::move(opened));
  return std::make_unique<DialOpening>(loop, std::move(socket).value(), unix_socket,
                                       std::move(handshake).value(), deadline, std::move(opened));
}

std::unique_ptr<Opening> Opening::accept(EventLoop& loop, Fd socket, bool unix_socket,
                                         const OpeningConfig& config, Deadline deadline, Opened opened,
                                         DataOpened data) {
  Result<HandshakeConfig> handshake = config.handshake(unix_socket);
  if (!handshake.ok()) {
    return std::make_unique<FailedOpening>(loop, std::move(handshake).error(), std::move(opened));
  }
  return std::make_unique<AcceptOpening>(loop, std::move(socket), unix_socket, std::move(handshake).value(),
                                         deadline, std::move(opened), std::move(data));
}

}  // namespace stagewire
