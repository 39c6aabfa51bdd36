// See verbs_options.h.
#include "transport/verbs/verbs_options.h"

namespace stagewire {

VerbsOptions verbs_options(const NodeConfig& config) {
  // The table of options bounds every value, so that none is cut here.
  constexpr std::uint32_t kChosen = 256;
  const auto byte = [](std::uint32_t value) { return static_cast<std::uint8_t>(value); };
  VerbsOptions options;
  options.device = config.rdma_device;
  options.port = byte(config.rdma_port);
  options.gid_index =
      config.rdma_gid_index == kChosen ? -1 : static_cast<std::int32_t>(config.rdma_gid_index);
  options.mtu = config.rdma_mtu;
  options.pkey_index = static_cast<std::uint16_t>(config.rdma_pkey_index);
  options.traffic_class = byte(config.rdma_traffic_class);
  options.service_level = byte(config.rdma_service_level);
  options.hop_limit = byte(config.rdma_hop_limit);
  options.global_route = config.rdma_global_route;
  options.timeout = byte(config.rdma_timeout);
  options.retry_count = byte(config.rdma_retry_count);
  options.rnr_retry = byte(config.rdma_rnr_retry);
  options.queue_pairs = config.rdma_queue_pairs;
  options.max_queue_pairs = config.rdma_max_queue_pairs;
  options.send_queue_depth = config.rdma_send_queue_depth;
  options.chunk_size = config.rdma_chunk;
  options.window = config.rdma_window;
  options.spin = std::chrono::duration_cast<std::chrono::microseconds>(config.rdma_spin);
  options.abort_fence = std::chrono::duration_cast<std::chrono::milliseconds>(config.rdma_abort_fence);
  options.connect_timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(config.rdma_connect_timeout);
  options.idle_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(config.rdma_idle_timeout);
  return options;
}

}  // namespace stagewire
