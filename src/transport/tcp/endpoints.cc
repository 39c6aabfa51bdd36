// See endpoints.h.
#include "transport/tcp/endpoints.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>

#include "transport/bytes.h"

namespace stagewire {

namespace {

constexpr std::uint8_t kHelloVersion = 1;
constexpr std::size_t kMaxAddressText = 63;  // an IPv6 address with the longest interface name fits

std::optional<SocketAddress> parse_address(const std::string& ip, std::uint16_t port) {
  addrinfo hints{};
  // Numeric alone: no resolver is asked, so this does not block. It also reads an interface scope
  // (fe80::1%eth0).
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  const bool v6 = found->ai_family == AF_INET6;
  address.text = (v6 ? "[" + ip + "]" : ip) + ":" + std::to_string(port);
  return address;
}

bool is_loopback(const SocketAddress& address) noexcept {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24U == 127U;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address.storage, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
         (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

Status set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) == 0) return {};
  return Error::from_errno(errno, std::string("cannot set ") + what + " on a data connection");
}

}  // namespace

std::string encode_endpoints(const std::vector<TcpEndpoint>& endpoints) {
  std::string out;
  bytes::put(out, kHelloVersion);
  const std::size_t count = std::min(endpoints.size(), kMaxEndpoints);
  bytes::put(out, static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::string ip = endpoints[i].ip.substr(0, kMaxAddressText);
    bytes::put(out, endpoints[i].port);
    bytes::put(out, static_cast<std::uint8_t>(ip.size()));
    out += ip;
  }
  return out;
}

Result<std::vector<TcpEndpoint>> decode_endpoints(std::string_view hello) {
  const auto bad = [](std::string_view what) {
    return Error(ErrorKind::protocol, "the peer's tcp hello " + std::string(what));
  };
  if (hello.size() < 2 || static_cast<std::uint8_t>(hello[0]) != kHelloVersion) {
    return bad("is not of version 1");
  }
  const auto count = static_cast<std::uint8_t>(hello[1]);
  if (count > kMaxEndpoints) return bad("names more than 16 endpoints");
  hello.remove_prefix(2);
  std::vector<TcpEndpoint> endpoints;
  for (unsigned i = 0; i < count; ++i) {
    if (hello.size() < 3) return bad("is cut short");
    TcpEndpoint endpoint;
    endpoint.port = bytes::get<std::uint16_t>(hello.data());
    const auto length = static_cast<std::uint8_t>(hello[2]);
    hello.remove_prefix(3);
    if (length > kMaxAddressText || hello.size() < length) return bad("has an address of a wrong length");
    if (endpoint.port == 0) return bad("names port 0");
    endpoint.ip = std::string(hello.substr(0, length));
    if (!endpoint.ip.empty() && !parse_address(endpoint.ip, endpoint.port)) {
      return bad("has an address that is no numeric IP address");
    }
    hello.remove_prefix(length);
    endpoints.push_back(std::move(endpoint));
  }
  if (!hello.empty()) return bad("has bytes after its last endpoint");
  return endpoints;
}

std::vector<SocketAddress> dial_order(const std::vector<TcpEndpoint>& endpoints, const std::string& peer_ip,
                                      bool same_host) {
  const std::optional<SocketAddress> seen = peer_ip.empty() ? std::nullopt : parse_address(peer_ip, 1);
  const bool loopback_ok = same_host || (seen && is_loopback(*seen));
  std::vector<SocketAddress> first;
  std::vector<SocketAddress> rest;
  const auto add = [&](std::vector<SocketAddress>& list, const std::string& ip, std::uint16_t port) {
    auto address = parse_address(ip, port);
    if (!address || (is_loopback(*address) && !loopback_ok)) return;
    const auto same = [&](const SocketAddress& other) { return other.text == address->text; };
    if (std::any_of(first.begin(), first.end(), same) || std::any_of(rest.begin(), rest.end(), same)) return;
    list.push_back(std::move(*address));
  };
  for (const TcpEndpoint& endpoint : endpoints) {
    const bool wildcard = endpoint.ip.empty();
    if (!peer_ip.empty() && (wildcard || endpoint.ip == peer_ip)) add(first, peer_ip, endpoint.port);
    if (peer_ip.empty() && wildcard) add(first, "127.0.0.1", endpoint.port);
  }
  for (const TcpEndpoint& endpoint : endpoints) {
    if (!endpoint.ip.empty()) add(rest, endpoint.ip, endpoint.port);
  }
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

Result<Fd> make_socket(const SocketAddress& address, const TcpOptions& options) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    const bool full = errno == EMFILE || errno == ENFILE;
    return Error::from_errno(errno, full ? "no descriptor is left for a data connection (raise `ulimit -n`)"
                                         : "cannot make a socket for a data connection");
  }
  STAGEWIRE_TRY(configure_socket(fd.get(), options));
  return fd;
}

namespace {

// Both ends of a connection to oneself have the same address, and on loopback one of 127/8 or ::1.
bool stays_on_this_host(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
      own.ss_family != peer.ss_family) {
    return false;  // not connected yet
  }
  if (own.ss_family == AF_INET) {
    const auto address = [](const sockaddr_storage& of) {
      return ntohl(reinterpret_cast<const sockaddr_in&>(of).sin_addr.s_addr);
    };
    constexpr std::uint32_t kLoopback = 127;
    return address(own) == address(peer) || address(peer) >> 24U == kLoopback;
  }
  if (own.ss_family != AF_INET6) return false;
  const auto& own6 = reinterpret_cast<const sockaddr_in6&>(own).sin6_addr;
  const auto& peer6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return std::memcmp(&own6, &peer6, sizeof(own6)) == 0;  // of ::1, too, whose both ends have it
}

Status set_congestion_control(int fd, const std::string& algorithm) {
  if (algorithm.empty() || ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
                                        static_cast<socklen_t>(algorithm.size())) == 0)
    return {};
  return Error(ErrorKind::config, "the kernel does not offer the congestion control '" + algorithm +
                                      "' (tcp_congestion); see net.ipv4.tcp_available_congestion_control");
}

}  // namespace

Status check_offered(const TcpOptions& options) {
  if (options.congestion_control.empty()) return {};
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno(errno, "socket");
  return set_congestion_control(socket.get(), options.congestion_control);
}

Status configure_socket(int fd, const TcpOptions& options) {
  STAGEWIRE_TRY(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  if (options.send_buffer > 0) {
    STAGEWIRE_TRY(set_option(fd, SOL_SOCKET, SO_SNDBUF, options.send_buffer, "SO_SNDBUF"));
  }
  if (options.receive_buffer > 0) {
    STAGEWIRE_TRY(set_option(fd, SOL_SOCKET, SO_RCVBUF, options.receive_buffer, "SO_RCVBUF"));
  }
  const std::string& algorithm = options.congestion_control;
  if (algorithm.empty() && stays_on_this_host(fd)) {
    // There is no network to be careful with, and an algorithm that paces what it sends (bbr) only waits:
    // 0.74 of the rate was measured. Every kernel has this one; if it may not be chosen, the default does.
    constexpr std::string_view kWithoutPacing = "reno";
    static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kWithoutPacing.data(),
                                   static_cast<socklen_t>(kWithoutPacing.size())));
  }
  STAGEWIRE_TRY(set_congestion_control(fd, algorithm));
  const auto dead_after = static_cast<int>(options.dead_after.count());
  STAGEWIRE_TRY(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  const int seconds = std::max(1, dead_after / 1000);
  STAGEWIRE_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds, "TCP_KEEPIDLE"));
  STAGEWIRE_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4), "TCP_KEEPINTVL"));
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, dead_after, "TCP_USER_TIMEOUT");
}

bool would_block(int error_number) noexcept {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

}  // namespace stagewire
