// Accepting connections. See listener.h.
#include "session/listener.h"

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "session/socket.h"

namespace stagewire {

namespace {
// Connections accepted per wake-up, so that a flood leaves the loop time for its sessions.
constexpr int kAcceptsPerWake = 32;
// How long to leave the backlog alone when there is no descriptor to accept with.
constexpr auto kOutOfDescriptorsPause = std::chrono::milliseconds(100);
}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(EventLoop& loop, const Address& address,
                                                   const OpeningConfig& config, OpeningLimits& limits,
                                                   std::shared_ptr<Logger> log, Handlers handlers) {
  if (Result<HandshakeConfig> check = config.handshake(address.kind == Address::Kind::unix_socket);
      !check.ok()) {
    return std::move(check).error();
  }
  Address bound;
  STAGEWIRE_ASSIGN(Fd socket, listen_on(address, bound));
  return std::unique_ptr<Listener>(new Listener(loop, std::move(socket), std::move(bound), config, limits,
                                                std::move(log), std::move(handlers)));
}

Listener::Listener(EventLoop& loop, Fd socket, Address address, OpeningConfig config, OpeningLimits& limits,
                   std::shared_ptr<Logger> log, Handlers handlers)
    : loop_(loop),
      socket_(std::move(socket)),
      address_(std::move(address)),
      config_(std::move(config)),
      limits_(limits),
      log_(std::move(log)),
      handlers_(std::move(handlers)),
      watch_(loop_.watch(socket_.get(), [this] { on_readable(); }, [] {})) {}

Listener::~Listener() {
  loop_.cancel(resume_timer_);
  limits_.unauthenticated -= attempts_.size();
  if (address_.kind == Address::Kind::unix_socket && address_.path.front() == '/')
    ::unlink(address_.path.c_str());
}

void Listener::on_readable() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    Fd accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting(errno);
      return;  // EAGAIN, or a connection that died in the backlog
    }
    if (limits_.unauthenticated >= limits_.max_unauthenticated) {
      ++limits_.refused;
      continue;  // closes it
    }
    start_opening(std::move(accepted));
  }
}

void Listener::pause_accepting(int error) {
  if (!std::exchange(said_out_of_descriptors_, true)) {
    log_->error("cannot accept connections on " + address_.to_string() + ": " +
                Error::from_errno(error, "accept").message() +
                "; trying again every 100 ms (raise ulimit -n)");
  }
  watch_->want_read(false);
  resume_timer_ = loop_.call_at(Deadline::in(kOutOfDescriptorsPause), [this] {
    resume_timer_ = 0;
    watch_->want_read(true);
  });
}

void Listener::start_opening(Fd socket) {
  const bool unix_socket = address_.kind == Address::Kind::unix_socket;
  if (!unix_socket) set_no_delay(socket.get());
  ++limits_.unauthenticated;
  const auto attempt = attempts_.emplace(attempts_.end());
  attempt->opening = Opening::accept(
      loop_, std::move(socket), unix_socket, config_, Deadline::in(limits_.opening_timeout),
      [this, attempt](Result<OpenedConnection> opened) {
        end_attempt(attempt);
        if (!opened.ok()) {
          log_->info("refused a connection to " + address_.to_string() + ": " + opened.error().to_string());
          return;
        }
        handlers_.on_control(std::move(opened).value());
      },
      [this, attempt](Fd data_socket, DataHello hello) {
        end_attempt(attempt);
        handlers_.on_data(std::move(data_socket), hello);
      });
}

void Listener::end_attempt(std::list<Attempt>::iterator attempt) {
  --limits_.unauthenticated;
  // The opening is on the stack below this call: it ends on the next turn of the loop. Its list node goes
  // now.
  loop_.post([opening = std::shared_ptr<Opening>(std::move(attempt->opening))] {});
  attempts_.erase(attempt);
}

}  // namespace stagewire
