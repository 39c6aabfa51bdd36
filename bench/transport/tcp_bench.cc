// Compares the tcp transport with bare sockets that move the same buffers over as many streams, interleaved
// in one run between two processes. The child process serves both; the parent reads, measures and prints the
// medians and the median of the pair ratios. Plain program: a Google Benchmark loop cannot interleave.
#include <algorithm>
#include <arpa/inet.h>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <stagewire/base/metrics.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "transport/bytes.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using namespace stagewire;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::uint64_t size = 195'035'136;  // 28 layers × K and V × 4 heads × 128 × 3,400 tokens × 2 bytes
  unsigned pairs = 15;
  unsigned at_once = 1;      // concurrent reads of `size` bytes each
  bool pin = true;           // one core per process, where there are two
  std::uint64_t ranges = 1;  // source ranges per read
  bool bare_wait = false;    // MSG_WAITALL in the baseline
  std::size_t bare_io = 0;   // bytes per send and recv of the baseline; 0: as many as are left
  TcpOptions options;
};

constexpr std::size_t kHelloSize = 128;

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

Fd listen_anywhere(std::uint16_t& port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 64) != 0)
    abort();
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

Fd dial(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) abort();
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

bool receive_all(int fd, void* data, std::size_t size, std::size_t piece, int flags = 0) {
  auto* at = static_cast<char*>(data);
  while (size != 0) {
    const ssize_t n = ::recv(fd, at, piece == 0 ? size : std::min(size, piece), flags);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool send_all(int fd, const void* data, std::size_t size, std::size_t piece) {
  const auto* at = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t n = ::send(fd, at, piece == 0 ? size : std::min(size, piece), MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

struct Channel final : LinkChannel {
  NodeId self_id;
  NodeId peer_id;
  std::string ip = "127.0.0.1";
  const NodeId& self() const override { return self_id; }
  const NodeId& peer() const override { return peer_id; }
  bool same_host() const override { return false; }
  const std::string& peer_ip() const override { return ip; }
  std::array<std::byte, 32> derive_key(std::string_view, std::uint64_t) const override { return {}; }
  std::array<std::byte, 16> session_id() const override { return {}; }
  std::string data_hello(std::uint64_t index) override {
    std::string hello;
    bytes::put(hello, index);
    hello.resize(kHelloSize);
    return hello;
  }
  void send(std::string) override {}
};

struct Source final : SourceAccess {
  std::byte* base = nullptr;
  std::shared_ptr<int> owner = std::make_shared<int>(0);
  Result<SourcePin> pin(const NodeId&, std::uint64_t, const RemoteRange& range) override {
    return SourcePin{base + range.offset, MemoryKind::host(), owner};
  }
};

std::byte* make_buffer(std::uint64_t size) {
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) abort();
  std::memset(data, 0x3C, size);
  return static_cast<std::byte*>(data);
}

void serve(const Settings& settings, const Fd& bare, const Fd& data) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (settings.pin) pin_to(0);
  Source source;
  source.base = make_buffer(settings.size);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < settings.options.connections; ++i) {
    threads.emplace_back([&] {
      const Fd fd(::accept(bare.get(), nullptr, nullptr));
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      std::uint64_t want[2];
      while (receive_all(fd.get(), want, sizeof want, 0)) {
        if (!send_all(fd.get(), source.base + want[0], want[1], settings.bare_io)) return;
      }
    });
  }
  EventLoop loop("bench-server");
  Metrics metrics;
  Channel channel;
  auto transport =
      TcpTransport::create(settings.options, source, Logger::create("b", LogLevel::warn), metrics);
  std::unique_ptr<Link> link = (*transport)->connect(channel, encode_endpoints({})).value();
  for (;;) {
    Fd fd(::accept(data.get(), nullptr, nullptr));
    std::string hello(kHelloSize, '\0');
    if (!fd || !receive_all(fd.get(), hello.data(), hello.size(), 0)) continue;
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    static_cast<void>(link->adopt(std::move(fd), bytes::get<std::uint64_t>(hello.data())));
  }
}

// Persistent threads, one per stream, that each fetch their share on a common start.
class BareReader {
 public:
  BareReader(const Settings& settings, std::uint16_t port, std::byte* to)
      : settings_(settings), gate_(settings.options.connections + 1) {
    for (unsigned i = 0; i < settings.options.connections; ++i) {
      threads_.emplace_back([this, i, port, to] {
        const Fd fd = dial(port);
        const std::uint64_t share = settings_.size / settings_.options.connections;
        const std::uint64_t want[2] = {
            i * share, i + 1 == settings_.options.connections ? settings_.size - i * share : share};
        for (;;) {
          gate_.arrive_and_wait();
          if (stop_) return;
          for (unsigned n = 0; n < settings_.at_once; ++n) {
            if (!send_all(fd.get(), want, sizeof want, 0) ||
                !receive_all(fd.get(), to + want[0], want[1], settings_.bare_io,
                             settings_.bare_wait ? MSG_WAITALL : 0)) {
              abort();
            }
          }
          gate_.arrive_and_wait();
        }
      });
    }
  }
  ~BareReader() {
    stop_ = true;
    gate_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  void read() {
    gate_.arrive_and_wait();
    gate_.arrive_and_wait();
  }

 private:
  const Settings& settings_;
  std::barrier<> gate_;
  bool stop_ = false;  // set before the barrier that publishes it
  std::vector<std::thread> threads_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename F>
double seconds(F&& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(const Settings& settings, std::uint16_t bare_port, std::uint16_t data_port) {
  if (settings.pin) pin_to(1);
  std::byte* to = make_buffer(settings.size);
  Source none;
  Metrics metrics;
  Channel channel;
  auto transport = TcpTransport::create(settings.options, none, Logger::create("b", LogLevel::warn), metrics);
  if (!transport.ok()) {
    std::fprintf(stderr, "%s\n", transport.error().to_string().c_str());
    std::exit(2);
  }
  std::unique_ptr<Link> link =
      (*transport)->connect(channel, encode_endpoints({{"127.0.0.1", data_port}})).value();
  link->attach({1, settings.size, MemoryKind::host(), "", {}}).value();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> latencies;
  const auto ours = [&] {
    unsigned left = settings.at_once;
    const auto start = Clock::now();
    for (unsigned n = 0; n < settings.at_once; ++n) {
      ReadRequest request{1, {}, {{to, settings.size}}};
      const std::uint64_t piece = settings.size / settings.ranges;
      // In reverse order, so that neighbours cannot be merged.
      for (std::uint64_t i = settings.ranges; i-- > 0;) request.from.push_back({1, i * piece, piece});
      request.to[0].length = settings.ranges * piece;
      link->read(std::move(request), [&](const Status& status) {
        if (!status.ok()) {
          std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
          std::exit(1);
        }
        const std::lock_guard lock(mutex);
        latencies.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        if (--left == 0) changed.notify_all();
      });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
  };
  BareReader bare(settings, bare_port, to);
  for (int i = 0; i < 3; ++i) {
    bare.read();
    ours();
  }
  latencies.clear();
  std::vector<double> bare_times;
  std::vector<double> our_times;
  std::vector<double> ratios;
  for (unsigned i = 0; i < settings.pairs; ++i) {
    double b = 0;
    double o = 0;
    if (i % 2 == 0) {
      b = seconds([&] { bare.read(); });
      o = seconds(ours);
    } else {
      o = seconds(ours);
      b = seconds([&] { bare.read(); });
    }
    bare_times.push_back(b);
    our_times.push_back(o);
    ratios.push_back(b / o);
  }
  const double gigabytes = static_cast<double>(settings.size) * settings.at_once / 1e9;
  std::sort(latencies.begin(), latencies.end());
  std::printf(
      "bare %.2f GB/s  stagewire %.2f GB/s  ratio (median of %u pairs) %.3f  read p50 %.2f ms p99 %.2f ms\n",
      gigabytes / median(bare_times), gigabytes / median(our_times), settings.pairs, median(ratios),
      latencies[latencies.size() / 2] * 1e3, latencies[latencies.size() * 99 / 100] * 1e3);
  std::condition_variable ended;
  bool closed = false;
  link->close([&] {
    const std::lock_guard lock(mutex);
    closed = true;
    ended.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return closed; });
  }
  (*transport)->close();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--size")
      settings.size = value;
    else if (name == "--pairs")
      settings.pairs = static_cast<unsigned>(value);
    else if (name == "--at-once")
      settings.at_once = static_cast<unsigned>(value);
    else if (name == "--pin")
      settings.pin = value != 0;
    else if (name == "--ranges")
      settings.ranges = value;
    else if (name == "--bare-wait")
      settings.bare_wait = value != 0;
    else if (name == "--bare-io")
      settings.bare_io = value;
    else if (name == "--connections")
      settings.options.connections = static_cast<unsigned>(value);
    else if (name == "--data-threads")
      settings.options.data_threads = static_cast<unsigned>(value);
    else if (name == "--chunk")
      settings.options.chunk_size = value;
    else if (name == "--window")
      settings.options.window = static_cast<unsigned>(value);
    else if (name == "--send-buffer")
      settings.options.send_buffer = static_cast<int>(value);
    else if (name == "--receive-buffer")
      settings.options.receive_buffer = static_cast<int>(value);
    else if (name == "--congestion")
      settings.options.congestion_control = argv[i + 1];
    else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      return 2;
    }
  }
  std::uint16_t bare_port = 0;
  std::uint16_t data_port = 0;
  const Fd bare = listen_anywhere(bare_port);
  const Fd data = listen_anywhere(data_port);
  // The child must inherit the listeners, which an Fd closes on fork: duplicates are not tracked.
  const int bare_copy = ::dup(bare.get());
  const int data_copy = ::dup(data.get());
  const pid_t child = ::fork();
  if (child == 0) {
    serve(settings, Fd(bare_copy), Fd(data_copy));
    std::_Exit(0);
  }
  ::close(bare_copy);
  ::close(data_copy);
  measure(settings, bare_port, data_port);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return 0;
}
