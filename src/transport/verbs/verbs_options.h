// Every tuning knob of the verbs transport in one place, each with its reason. Plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <stagewire/base/config.h>

namespace stagewire {

struct VerbsOptions {
  // Which device; empty, 0 and -1 leave the choice to device_choice.h.
  std::string device;           ///< as ibv_devices lists it, e.g. "mlx5_0"
  std::uint8_t port = 0;        ///< from 1
  std::int32_t gid_index = -1;  ///< in the port's table

  // The path, with the names that the verbs API has for them.
  std::uint32_t mtu = 4096;        ///< bytes; the port's and the peer's bound it, too
  std::uint16_t pkey_index = 0;    ///< 0 is the default partition
  std::uint8_t traffic_class = 0;  ///< RoCE: DSCP in the upper 6 bits
  std::uint8_t service_level = 0;  ///< InfiniBand: SL; RoCE: priority where the driver takes it from here
  std::uint8_t hop_limit = 64;     ///< of the global route header (IP's time to live)
  std::uint8_t timeout = 14;       ///< local ACK timeout: 4.096 µs × 2^timeout = 67 ms
  std::uint8_t retry_count = 6;    ///< 7 tries; adapters may take up to 4 × timeout for each: ≤ 1.9 s
  std::uint8_t rnr_retry = 6;      ///< 7 would mean for ever
  bool global_route = false;       ///< InfiniBand: always use a GRH, also within one subnet

  // How much at once.
  std::uint32_t queue_pairs = 2;        ///< per peer, for reads from it
  std::uint32_t max_queue_pairs = 256;  ///< of this node in all, in either direction
  std::uint32_t send_queue_depth = 128;
  std::uint64_t chunk_size = 1ULL << 20;  ///< bytes of one RDMA READ at most
  std::uint64_t window = 16ULL << 20;     ///< bytes in flight per read, so that an abort is soon over
  std::uint64_t mr_piece = 4ULL << 30;    ///< bytes of one registration at most; larger memory gets several

  // Time.
  std::chrono::microseconds spin{20};             ///< how long the poller spins after its last completion
  std::chrono::milliseconds abort_fence{50};      ///< for an aborted read's window to finish by itself
  std::chrono::milliseconds drain_timeout{1500};  ///< then the queue pair is destroyed
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds idle_timeout{0};         ///< unused queue pairs are closed then; 0: kept
  std::chrono::milliseconds helper_timeout{10'000};  ///< of one call that may block
  std::chrono::milliseconds retry_first{1000};       ///< wait after a connection failed; doubles
  std::chrono::milliseconds retry_last{30'000};
};

/// The options as a node is configured with them.
VerbsOptions verbs_options(const NodeConfig& config);

/// What a peer may ask for, whatever its options are.
inline constexpr std::size_t kMaxVerbsQueuesPerPeer = 16;
inline constexpr std::size_t kMaxVerbsMemories = 256;
/// Registrations of one memory: at 4 GiB each this is 16 TiB, a pool's bound.
inline constexpr std::size_t kMaxVerbsPieces = 4096;

}  // namespace stagewire
