// Which transports a node has, and with which options. See core.h.
#include <algorithm>
#include <utility>

#include "node/core.h"
#include "transport/local/local_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace stagewire {

Status NodeCore::make_transports() {
  transports_.push_back(std::make_unique<LocalTransport>(*engine_));
  transports_.push_back(std::make_unique<ShmTransport>(*engine_));
  TcpOptions options;
  options.connections = config_.tcp_connections;
  options.data_threads = config_.data_threads;
  options.chunk_size = config_.tcp_chunk;
  options.window = config_.tcp_window;
  options.send_buffer = static_cast<int>(config_.tcp_buffer);
  options.receive_buffer = static_cast<int>(config_.tcp_buffer);
  options.congestion_control = config_.tcp_congestion;
  // The kernel counts in seconds here; the sessions' own heartbeats see to shorter and longer leases.
  options.dead_after = std::clamp<std::chrono::milliseconds>(
      std::chrono::duration_cast<std::chrono::milliseconds>(config_.lease), std::chrono::seconds(1),
      std::chrono::hours(1));
  STAGEWIRE_ASSIGN(std::unique_ptr<TcpTransport> tcp,
                   TcpTransport::create(options, lease_table_, log_, metrics_));
  tcp_ = tcp.get();
  transports_.push_back(std::move(tcp));
  for (auto& transport : transports_) {
    for (const ExportedMemory& memory : memories_) {
      if (Result<MemoryToken> token = transport->export_memory(memory); !token.ok())
        return std::move(token).error();
    }
  }
  return {};
}

Status NodeCore::make_verbs(const VerbsTransport::OpenApi& open_verbs) {
  const bool allowed =
      std::any_of(config_.routes.begin(), config_.routes.end(),
                  [](const std::string& route) { return route == "auto" || route == "verbs"; });
  if (!allowed) return {};
  STAGEWIRE_ASSIGN(std::unique_ptr<VerbsTransport> verbs,
                   VerbsTransport::create(
                       verbs_options(config_), loop_,
                       [mailbox = mailbox_](EventLoop::Task task) { return mailbox->post(std::move(task)); },
                       log_, metrics_, open_verbs));
  if (verbs->viability().viable) {
    verbs->add_receive_pool(receive_pool_);
    for (const ExportedMemory& memory : memories_) {
      if (Result<MemoryToken> token = verbs->export_memory(memory); !token.ok())
        return std::move(token).error();
    }
  }
  transports_.push_back(std::move(verbs));
  return {};
}

}  // namespace stagewire
