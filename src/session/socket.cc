// Socket helpers over the BSD socket calls. See socket.h.
#include "session/socket.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace stagewire {

namespace {

#ifndef SO_PEERPIDFD
constexpr int kSoPeerPidfd = 77;  // Linux 6.5, newer than Debian 12's headers
#else
constexpr int kSoPeerPidfd = SO_PEERPIDFD;
#endif

constexpr int kBacklog = 512;
// Entries of a socket directory that one start looks through, so that a huge directory cannot hold it up.
constexpr std::size_t kMaxSocketsLookedAt = 4096;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress unix_address(const std::string& path) {
  SocketAddress result;
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, path.data(), path.size());
  if (path.front() == '@') un.sun_path[0] = '\0';
  std::memcpy(&result.storage, &un, sizeof(un));
  // An abstract name is as long as said here; a path ends at its NUL, which the zeroed struct supplies.
  result.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (path.front() == '@' ? 0 : 1));
  return result;
}

Result<std::vector<SocketAddress>> lookup(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) {
    return Error(ErrorKind::unreachable,
                 "host name '" + address.host + "' cannot be resolved: " + ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> result;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress one;
    std::memcpy(&one.storage, entry->ai_addr, entry->ai_addrlen);
    one.length = entry->ai_addrlen;
    result.push_back(one);
  }
  return result;
}

std::string numeric_host(const sockaddr_storage& storage, std::uint16_t* port) {
  std::array<char, INET6_ADDRSTRLEN + 20> text{};
  if (storage.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &storage, sizeof(in));
    if (port != nullptr) *port = ntohs(in.sin_port);
    ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
    return text.data();
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &storage, sizeof(in));
    if (port != nullptr) *port = ntohs(in.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      ::inet_ntop(AF_INET, &in.sin6_addr.s6_addr[12], text.data(), text.size());
    } else {
      ::inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
      if (in.sin6_scope_id != 0) return std::string(text.data()) + "%" + std::to_string(in.sin6_scope_id);
    }
    return text.data();
  }
  return {};
}

// A path left behind by a killed process would make bind fail; it is stale if nobody answers on it.
void remove_stale_path(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress target = unix_address(path);
  if (probe && ::connect(probe.get(), target.get(), target.length) != 0 && errno == ECONNREFUSED)
    ::unlink(path.c_str());
}

}  // namespace

Result<std::vector<Address>> resolve(const Address& address) {
  STAGEWIRE_ASSIGN(const std::vector<SocketAddress> found, lookup(address, AI_ADDRCONFIG));
  std::vector<Address> result;
  for (const SocketAddress& one : found) {
    Address numeric = address;
    numeric.host = numeric_host(one.storage, nullptr);
    if (!numeric.host.empty()) result.push_back(std::move(numeric));
  }
  if (result.empty())
    return Error(ErrorKind::unreachable, "host name '" + address.host + "' has no IP address");
  return result;
}

Result<Fd> listen_on(const Address& address, Address& bound) {
  bound = address;
  const auto failed = [&address](int error) {
    std::string hint;
    if (error == EADDRINUSE)
      hint = " (another process listens there: choose another port, or 0 to let the kernel choose)";
    if (error == EACCES) hint = " (not permitted: ports below 1024 and foreign directories need privileges)";
    if (error == EADDRNOTAVAIL) hint = " (no interface of this host has that address)";
    Error result = Error::from_errno(error, "cannot listen on " + address.to_string() + hint);
    return result;
  };
  if (address.kind == Address::Kind::unix_socket) {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return failed(errno);
    if (address.path.front() == '/') remove_stale_path(address.path);
    const SocketAddress target = unix_address(address.path);
    if (::bind(fd.get(), target.get(), target.length) != 0 || ::listen(fd.get(), kBacklog) != 0)
      return failed(errno);
    return fd;
  }
  STAGEWIRE_ASSIGN(const std::vector<SocketAddress> candidates, lookup(address, AI_PASSIVE));
  int last_error = EADDRNOTAVAIL;
  for (const SocketAddress& candidate : candidates) {
    Fd fd(::socket(candidate.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      last_error = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on,
                 sizeof(on));  // rebind while old connections are in TIME_WAIT
    if (::bind(fd.get(), candidate.get(), candidate.length) == 0 && ::listen(fd.get(), kBacklog) == 0) {
      sockaddr_storage real{};
      socklen_t length = sizeof(real);
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&real), &length);
      bound.host = numeric_host(real, &bound.port);
      return fd;
    }
    last_error = errno;
  }
  return failed(last_error);
}

Result<Fd> start_connect(const Address& numeric_or_unix) {
  SocketAddress target;
  int family = AF_UNIX;
  if (numeric_or_unix.kind == Address::Kind::unix_socket) {
    target = unix_address(numeric_or_unix.path);
  } else {
    STAGEWIRE_ASSIGN(const std::vector<SocketAddress> found, lookup(numeric_or_unix, AI_NUMERICHOST));
    target = found.front();
    family = target.storage.ss_family;
  }
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno(errno, "cannot create a socket");
  if (family != AF_UNIX) set_no_delay(fd.get());
  if (::connect(fd.get(), target.get(), target.length) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    return Error(ErrorKind::unreachable, "cannot connect to " + numeric_or_unix.to_string() + ": " +
                                             Error::from_errno(error, "connect").message());
  }
  return fd;
}

void remove_stale_sockets(const std::string& socket_dir) {
  std::error_code error;
  std::size_t looked_at = 0;
  for (const auto& entry : std::filesystem::directory_iterator(socket_dir, error)) {
    if (++looked_at > kMaxSocketsLookedAt) return;
    const std::string name = entry.path().filename().string();
    if (name.starts_with("stagewire-") && name.ends_with(".sock")) remove_stale_path(entry.path().string());
  }
}

int connect_error(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::optional<PeerCredentials> peer_credentials(int fd) noexcept {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid};
}

Fd peer_pidfd(int fd) noexcept {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (::getsockopt(fd, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0) return Fd(pidfd);
  // Older kernels: open it by number. The peer holds the other end of this socket, so unless it has already
  // died and its number was reused, which its hang-up also tells, this is it.
  const auto credentials = peer_credentials(fd);
  if (!credentials || credentials->pid <= 0) return {};
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, credentials->pid, 0)));
}

std::string peer_ip(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return numeric_host(storage, nullptr);
}

void set_no_delay(int fd) noexcept {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool is_local_host(const std::string& host) {
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return true;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    sockaddr_storage storage{};
    if (entry->ifa_addr->sa_family == AF_INET) {
      std::memcpy(&storage, entry->ifa_addr, sizeof(sockaddr_in));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(&storage, entry->ifa_addr, sizeof(sockaddr_in6));
    } else {
      continue;
    }
    if (numeric_host(storage, nullptr) == host) return true;
  }
  return false;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

}  // namespace stagewire
