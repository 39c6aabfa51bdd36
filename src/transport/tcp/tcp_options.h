// Every knob of the tcp transport, each with its reason. A plain value; the node fills it from its
// configuration.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace stagewire {

struct TcpOptions {
  /// Data connections that a reader opens to each peer. Two were fastest on loopback with two cores: one
  /// leaves a core idle at each end, more only add context switches.
  unsigned connections = 2;
  /// Threads that move bytes, shared by all peers and both directions; connections are spread over them.
  unsigned data_threads = 2;
  /// Bytes asked for in one request. Large enough that the request costs nothing against the copy, small
  /// enough that concurrent reads take turns and that the connections end together.
  std::uint64_t chunk_size = 1U << 20U;
  /// Requests outstanding per connection: keeps the sender busy while a request travels, and bounds what an
  /// aborted read still has to drain (window × chunk_size per connection).
  unsigned window = 4;
  /// Kernel socket buffers in bytes; 0 leaves them to the kernel's autotuning.
  int send_buffer = 0;
  int receive_buffer = 0;
  /// A congestion control algorithm by the kernel's name; empty: the system's default, or one that does not
  /// pace on a connection that stays on this host.
  std::string congestion_control;
  /// From dialling a data connection until its opening is accepted, over all of the peer's addresses.
  std::chrono::milliseconds connect_timeout{5000};
  /// How often a chunk is asked for again after its connection broke, and how many connections beyond the
  /// first ones may be dialled for the reads that run.
  unsigned retries = 3;
  /// A connection whose bytes stay unacknowledged for this long is given up (TCP_USER_TIMEOUT); idle ones are
  /// probed (SO_KEEPALIVE), because a path that forgot the connection answers nothing at all.
  std::chrono::milliseconds dead_after{10000};
};

/// Bounds that hold whatever the options say, on both sides of a data connection.
inline constexpr std::uint64_t kMaxChunkSize = 16U << 20U;
inline constexpr std::size_t kMaxChunkRanges = 64;
inline constexpr std::size_t kMaxQueuedRequests = 256;
inline constexpr std::size_t kMaxServedConnections = 16;  ///< per peer
inline constexpr std::size_t kMaxTcpMemories = 1024;      ///< per peer
inline constexpr std::size_t kMaxEndpoints = 16;
/// Reads smaller than connections × this use fewer connections: below it a second one costs more than it
/// brings.
inline constexpr std::uint64_t kMinChunkSize = 256U << 10U;

}  // namespace stagewire
