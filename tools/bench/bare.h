// Bare sockets, the baselines of the latency and TCP figures: a blocking echo of small messages, and streams
// that fetch a buffer's bytes. Nothing of stagewire's transports is used. Each server owns its threads; a
// client is used by one thread.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <stagewire/base/result.h>

#include "base/fd.h"

namespace stagewire::tools {

/// Bytes of a ping and of its pong.
inline constexpr std::size_t kPingBytes = 256;

/// Sends back every 256 bytes that come in, over one connection at a time, until destroyed.
class EchoServer {
 public:
  /// Over TCP on loopback with TCP_NODELAY, or over an abstract Unix socket. Errors: io.
  static Result<std::unique_ptr<EchoServer>> start(bool tcp);
  /// Over TCP (IPv4) on every interface; says on which port. Errors: io.
  static Result<std::unique_ptr<EchoServer>> start_for_all(std::uint16_t& port);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;
  /// What EchoClient::connect() takes.
  const std::string& address() const noexcept { return address_; }

 private:
  EchoServer() = default;
  void serve();

  Fd listener_;
  std::string address_;
  std::thread thread_;
};

class EchoClient {
 public:
  /// Errors: io.
  static Result<std::unique_ptr<EchoClient>> connect(const std::string& address);
  /// To the port of a start_for_all(). Errors: unreachable, io.
  static Result<std::unique_ptr<EchoClient>> connect_to_host(const std::string& host, std::uint16_t port);
  /// Seconds of each of `count` round trips, one after the other. Errors: io.
  Result<std::vector<double>> round_trips(unsigned count);

 private:
  Fd socket_;
};

/// How bare streams are set up; what is tried to find their best.
struct StreamSettings {
  std::string congestion;    ///< empty: the system's
  std::uint64_t buffer = 0;  ///< socket buffers in bytes; 0: the kernel's own tuning
  std::uint64_t piece = 0;   ///< bytes per send and receive call; 0: as many as are left
  std::string text() const;
};

/// Memory that a StreamServer sends from.
struct StreamSource {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
};

/// Serves ranges of its sources over any number of connections, one thread each.
class StreamServer {
 public:
  /// Errors: io.
  static Result<std::unique_ptr<StreamServer>> start(std::vector<StreamSource> sources);
  ~StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;
  std::uint16_t port() const noexcept { return port_; }

 private:
  explicit StreamServer(std::vector<StreamSource> sources) : sources_(std::move(sources)) {}
  void accept_all();
  void serve(int socket) const;

  std::vector<StreamSource> sources_;
  Fd listener_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;          // guards sockets_ and threads_
  std::vector<int> sockets_;  // closed when the server ends
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

/// Fetches a source over several connections at once, each its share, with a persistent thread per
/// connection.
class StreamClient {
 public:
  /// Errors: io.
  static Result<std::unique_ptr<StreamClient>> connect(std::uint16_t port, unsigned streams,
                                                       const StreamSettings& settings);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;
  /// Fetches the first `size` bytes of source number `source`. Errors: io.
  Status fetch(std::uint64_t source, std::byte* to, std::uint64_t size);

 private:
  StreamClient(std::vector<Fd> sockets, std::uint64_t piece);
  void work(std::size_t index);

  std::vector<Fd> sockets_;
  std::uint64_t piece_;
  std::uint64_t source_ = 0;  // these four are published by the barrier
  std::byte* to_ = nullptr;
  std::uint64_t size_ = 0;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::barrier<> gate_;
  std::vector<std::thread> workers_;
};

}  // namespace stagewire::tools
