// See bare.h.
#include "bench/bare.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace stagewire::tools {

namespace {

constexpr std::string_view kTcp = "tcp:";

bool receive_all(int socket, void* data, std::size_t size, std::uint64_t piece = 0) {
  auto* at = static_cast<char*>(data);
  while (size != 0) {
    const ssize_t n = ::recv(socket, at, piece == 0 ? size : std::min<std::size_t>(size, piece), 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool send_all(int socket, const void* data, std::size_t size, std::uint64_t piece = 0) {
  const auto* at = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t n =
        ::send(socket, at, piece == 0 ? size : std::min<std::size_t>(size, piece), MSG_NOSIGNAL);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

void no_delay(int socket) {
  const int on = 1;
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

sockaddr_in ipv4(in_addr_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

sockaddr_in loopback(std::uint16_t port) {
  return ipv4(INADDR_LOOPBACK, port);
}

Result<Fd> listen_tcp(std::uint16_t& port, in_addr_t host = INADDR_LOOPBACK) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = ipv4(host, 0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || ::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 64) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0) {
    return Error::from_errno(errno, "listening for the bare baseline");
  }
  port = ntohs(address.sin_port);
  return listener;
}

Error connect_error() {
  return Error::from_errno(errno, "connecting the bare baseline");
}

// Opens each bare stream.
struct StreamHello {
  std::array<char, 16> congestion{};
  std::uint64_t buffer = 0;
  std::uint64_t piece = 0;
};

struct StreamRequest {
  std::uint64_t source = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

bool set_congestion(int socket, std::string_view name) {
  return name.empty() || ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                      static_cast<socklen_t>(name.size())) == 0;
}

void set_buffer(int socket, int option, std::uint64_t bytes) {
  if (bytes == 0) return;
  const int value = static_cast<int>(std::min<std::uint64_t>(bytes, 1U << 30U));
  static_cast<void>(::setsockopt(socket, SOL_SOCKET, option, &value, sizeof value));
}

}  // namespace

Result<std::unique_ptr<EchoServer>> EchoServer::start(bool tcp) {
  std::unique_ptr<EchoServer> server(new EchoServer());
  if (tcp) {
    std::uint16_t port = 0;
    STAGEWIRE_ASSIGN(server->listener_, listen_tcp(port));
    server->address_ = std::string(kTcp) + std::to_string(port);
  } else {
    server->listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "stagewire-bench-echo-" + std::to_string(::getpid());
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (!server->listener_ ||
        ::bind(server->listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(server->listener_.get(), 4) != 0) {
      return Error::from_errno(errno, "listening on a Unix socket for the bare baseline");
    }
    server->address_ = name;
  }
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

Result<std::unique_ptr<EchoServer>> EchoServer::start_for_all(std::uint16_t& port) {
  std::unique_ptr<EchoServer> server(new EchoServer());
  STAGEWIRE_ASSIGN(server->listener_, listen_tcp(port, INADDR_ANY));
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

EchoServer::~EchoServer() {
  // Ends both a waiting accept and, since clients are gone by then, the echo.
  static_cast<void>(::shutdown(listener_.get(), SHUT_RDWR));
  if (thread_.joinable()) thread_.join();
}

void EchoServer::serve() {
  for (;;) {
    const Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    no_delay(socket.get());
    std::array<char, kPingBytes> ping{};
    while (receive_all(socket.get(), ping.data(), ping.size()) &&
           send_all(socket.get(), ping.data(), ping.size())) {
    }
  }
}

Result<std::unique_ptr<EchoClient>> EchoClient::connect(const std::string& address) {
  auto client = std::make_unique<EchoClient>();
  if (address.starts_with(kTcp)) {
    std::uint16_t port = 0;
    std::from_chars(address.data() + kTcp.size(), address.data() + address.size(), port);
    const sockaddr_in to = loopback(port);
    client->socket_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(client->socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return connect_error();
    no_delay(client->socket_.get());
    return client;
  }
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.size() + 1 > sizeof to.sun_path)
    return Error(ErrorKind::invalid_argument, "the name of the echo's socket is too long");
  std::memcpy(to.sun_path + 1, address.data(), address.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  client->socket_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(client->socket_.get(), reinterpret_cast<const sockaddr*>(&to), size) != 0)
    return connect_error();
  return client;
}

Result<std::unique_ptr<EchoClient>> EchoClient::connect_to_host(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
      failed != 0)
    return Error(ErrorKind::unreachable, "no IPv4 address of " + host + ": " + ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> guard(found, ::freeaddrinfo);
  auto client = std::make_unique<EchoClient>();
  client->socket_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(client->socket_.get(), found->ai_addr, found->ai_addrlen) != 0) return connect_error();
  no_delay(client->socket_.get());
  return client;
}

Result<std::vector<double>> EchoClient::round_trips(unsigned count) {
  std::vector<double> seconds;
  seconds.reserve(count);
  std::array<char, kPingBytes> ping{};
  for (unsigned i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!send_all(socket_.get(), ping.data(), ping.size()) ||
        !receive_all(socket_.get(), ping.data(), ping.size())) {
      return Error(ErrorKind::io, "the bare echo broke off");
    }
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

std::string StreamSettings::text() const {
  const auto size = [](std::uint64_t bytes, const char* none) {
    return bytes == 0 ? std::string(none) : std::to_string(bytes >> 10U) + " KiB";
  };
  return (congestion.empty() ? "system's congestion control" : congestion) + ", buffers " +
         size(buffer, "tuned by the kernel") + ", calls of " + size(piece, "any size");
}

Result<std::unique_ptr<StreamServer>> StreamServer::start(std::vector<StreamSource> sources) {
  std::unique_ptr<StreamServer> server(new StreamServer(std::move(sources)));
  STAGEWIRE_ASSIGN(server->listener_, listen_tcp(server->port_));
  server->acceptor_ = std::thread([raw = server.get()] { raw->accept_all(); });
  return server;
}

StreamServer::~StreamServer() {
  static_cast<void>(::shutdown(listener_.get(), SHUT_RDWR));
  if (acceptor_.joinable()) acceptor_.join();
  for (const int socket : sockets_) static_cast<void>(::shutdown(socket, SHUT_RDWR));
  for (std::thread& thread : threads_) thread.join();
  for (const int socket : sockets_) ::close(socket);
}

void StreamServer::accept_all() {
  for (;;) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    const std::lock_guard lock(mutex_);
    sockets_.push_back(socket);
    threads_.emplace_back([this, socket] { serve(socket); });
  }
}

void StreamServer::serve(int socket) const {
  StreamHello hello;
  if (!receive_all(socket, &hello, sizeof hello)) return;
  no_delay(socket);
  set_buffer(socket, SO_SNDBUF, hello.buffer);
  hello.congestion.back() = '\0';
  const bool usable = set_congestion(socket, hello.congestion.data());
  const char answer = usable ? 'y' : 'n';
  if (!send_all(socket, &answer, 1) || !usable) return;
  StreamRequest request;
  while (receive_all(socket, &request, sizeof request)) {
    if (request.source >= sources_.size()) return;
    const StreamSource& source = sources_[request.source];
    if (request.offset > source.size || request.length > source.size - request.offset) return;
    if (!send_all(socket, source.data + request.offset, request.length, hello.piece)) return;
  }
}

Result<std::unique_ptr<StreamClient>> StreamClient::connect(std::uint16_t port, unsigned streams,
                                                            const StreamSettings& settings) {
  std::vector<Fd> sockets;
  const sockaddr_in to = loopback(port);
  for (unsigned i = 0; i < streams; ++i) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_buffer(socket.get(), SO_RCVBUF,
               settings.buffer);  // before the connection: it decides the window's scale
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return connect_error();
    no_delay(socket.get());
    StreamHello hello;
    settings.congestion.copy(hello.congestion.data(), hello.congestion.size() - 1);
    hello.buffer = settings.buffer;
    hello.piece = settings.piece;
    char answer = 0;
    if (!set_congestion(socket.get(), settings.congestion) || !send_all(socket.get(), &hello, sizeof hello) ||
        !receive_all(socket.get(), &answer, 1) || answer != 'y') {
      return Error(ErrorKind::io, "a bare stream could not be set up with " + settings.text());
    }
    sockets.push_back(std::move(socket));
  }
  return std::unique_ptr<StreamClient>(new StreamClient(std::move(sockets), settings.piece));
}

StreamClient::StreamClient(std::vector<Fd> sockets, std::uint64_t piece)
    : sockets_(std::move(sockets)), piece_(piece), gate_(static_cast<std::ptrdiff_t>(sockets_.size()) + 1) {
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    workers_.emplace_back([this, i] {
      for (;;) {
        gate_.arrive_and_wait();
        if (stop_) return;
        work(i);
        gate_.arrive_and_wait();
      }
    });
  }
}

StreamClient::~StreamClient() {
  stop_ = true;
  gate_.arrive_and_wait();
  for (std::thread& worker : workers_) worker.join();
}

Status StreamClient::fetch(std::uint64_t source, std::byte* to, std::uint64_t size) {
  source_ = source;
  to_ = to;
  size_ = size;
  gate_.arrive_and_wait();
  gate_.arrive_and_wait();
  if (failed_) return Error(ErrorKind::io, "a bare stream broke off");
  return {};
}

void StreamClient::work(std::size_t index) {
  const std::uint64_t share = size_ / sockets_.size();
  StreamRequest request;
  request.source = source_;
  request.offset = share * index;
  request.length = index + 1 == sockets_.size() ? size_ - request.offset : share;
  const int socket = sockets_[index].get();
  if (!send_all(socket, &request, sizeof request) ||
      !receive_all(socket, to_ + request.offset, request.length, piece_)) {
    failed_ = true;
  }
}

}  // namespace stagewire::tools
