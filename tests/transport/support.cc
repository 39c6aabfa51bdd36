// See support.h.
#include "support.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "transport/bytes.h"

namespace stagewire::testing_support {

namespace {

void wait_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  const auto guard = std::chrono::duration_cast<std::chrono::milliseconds>(kHangGuard);
  if (::poll(&entry, 1, static_cast<int>(guard.count())) != 1) std::abort();
}

}  // namespace

std::string kind_name(const Status& status) {
  return status.ok() ? "ok" : std::string(to_string(status.error().kind()));
}

void run_on(EventLoop& loop, std::function<void()> function) {
  Once<bool> ran;
  loop.post([&] {
    function();
    ran.set(true);
  });
  ran.wait();
}

void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed) {
  // splitmix64: any byte depends on its position and the seed, so misplaced bytes show.
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < size; i += 8) {
    state += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    z ^= z >> 31U;
    std::memcpy(data + i, &z, std::min<std::size_t>(8, size - i));
  }
}

std::string TestChannel::data_hello(std::uint64_t index) {
  ++hellos;
  std::string hello;
  bytes::put(hello, index);
  hello.resize(kDataHelloSize, 'h');
  return hello;
}

std::uint64_t hello_index(const std::string& hello) {
  return hello.size() == kDataHelloSize ? bytes::get<std::uint64_t>(hello.data()) : ~0ULL;
}

void TestSource::add(std::uint32_t memory, std::shared_ptr<Pool> pool) {
  const std::lock_guard lock(mutex_);
  pools_[memory] = std::move(pool);
}

void TestSource::grant(std::uint64_t lease) {
  const std::lock_guard lock(mutex_);
  leases_.insert(lease);
}

void TestSource::revoke_after(std::uint64_t lease, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  revoke_after_[lease] = count;
}

void TestSource::shut_gate() {
  const std::lock_guard lock(mutex_);
  open_ = false;
}

void TestSource::open_gate() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void TestSource::wait_for_pins(std::uint64_t count) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kHangGuard, [&] { return begun_ >= count; })) std::abort();
}

Result<SourcePin> TestSource::pin(const NodeId& /*reader*/, std::uint64_t lease, const RemoteRange& range) {
  std::unique_lock lock(mutex_);
  ++begun_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_; });
  if (const auto limit = revoke_after_.find(lease); limit != revoke_after_.end()) {
    if (limit->second == 0) leases_.erase(lease);
    if (limit->second != 0) --limit->second;
  }
  if (!leases_.contains(lease)) {
    return Error(ErrorKind::lease_lost, "lease " + std::to_string(lease) + " is not live");
  }
  const auto found = pools_.find(range.memory);
  if (found == pools_.end() || range.offset > found->second->size() ||
      range.length > found->second->size() - range.offset) {
    return Error(ErrorKind::protocol, "the range is outside what the lease granted");
  }
  SourcePin pin;
  pin.data = found->second->base() + range.offset;
  ++*pinned_;
  // The pool itself is kept alive as well, as the node does it.
  pin.hold = std::shared_ptr<const void>(
      pin.data, [pinned = pinned_, pool = found->second](const void*) { --*pinned; });
  return pin;
}

Listener::Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_.get(), 64) != 0 ||
      ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
}

Fd Listener::accept() const {
  wait_readable(fd_.get());
  return Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

Fd dial(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  return fd;
}

std::string read_exactly(int fd, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    wait_readable(fd);
    const ssize_t n = ::recv(fd, bytes.data() + have, size - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool wait_for_close(int fd) {
  std::array<char, 65536> sink;
  for (;;) {
    wait_readable(fd);
    const ssize_t n = ::recv(fd, sink.data(), sink.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
  }
}

void set_non_blocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace stagewire::testing_support
