// See tcp_transport.h.
#include "transport/tcp/tcp_transport.h"

#include <string>
#include <utility>

#include "transport/tcp/data_server.h"
#include "transport/tcp/tcp_link.h"

namespace stagewire {

namespace {

template <typename T>
Status check_bounds(const char* option, T value, T low, T high) {
  if (value >= low && value <= high) return {};
  return Error(ErrorKind::config, std::string("tcp ") + option + " is " + std::to_string(value) +
                                      "; expected " + std::to_string(low) + " to " + std::to_string(high));
}

Status check_options(const TcpOptions& options) {
  STAGEWIRE_TRY(check_bounds<std::uint64_t>("connections", options.connections, 1, kMaxServedConnections));
  STAGEWIRE_TRY(check_bounds<std::uint64_t>("data_threads", options.data_threads, 1, 64));
  STAGEWIRE_TRY(check_bounds<std::uint64_t>("chunk_size", options.chunk_size, 4096, kMaxChunkSize));
  STAGEWIRE_TRY(check_bounds<std::uint64_t>("window", options.window, 1, kMaxQueuedRequests / 2));
  STAGEWIRE_TRY(check_bounds<std::int64_t>("send_buffer", options.send_buffer, 0, 1 << 30));
  STAGEWIRE_TRY(check_bounds<std::int64_t>("receive_buffer", options.receive_buffer, 0, 1 << 30));
  STAGEWIRE_TRY(
      check_bounds<std::int64_t>("connect_timeout (ms)", options.connect_timeout.count(), 1, 600'000));
  STAGEWIRE_TRY(check_bounds<std::int64_t>("dead_after (ms)", options.dead_after.count(), 1000, 3'600'000));
  return check_bounds<std::uint64_t>("retries", options.retries, 0, 100);
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(TcpOptions options, SourceAccess& source,
                                                           std::shared_ptr<Logger> log, Metrics& metrics) {
  STAGEWIRE_TRY(check_options(options));
  STAGEWIRE_TRY(check_offered(options));
  return std::unique_ptr<TcpTransport>(new TcpTransport(std::move(options), source, std::move(log), metrics));
}

TcpTransport::TcpTransport(TcpOptions options, SourceAccess& source, std::shared_ptr<Logger> log,
                           Metrics& metrics)
    : options_(std::move(options)), source_(source), log_(std::move(log)), metrics_(metrics) {}

TcpTransport::~TcpTransport() = default;

Viability TcpTransport::viability() const {
  return {true, "works wherever the peer's listening port can be reached"};
}

Result<MemoryToken> TcpTransport::export_memory(const ExportedMemory& memory) {
  STAGEWIRE_TRY(check_exportable(memory, name()));
  return MemoryToken();  // the bytes are reached through SourceAccess, by the memory's id
}

void TcpTransport::forget_memory(std::uint32_t memory, std::shared_ptr<const void> /*until*/) {
  for (const auto& each : *served_) {
    if (const auto serve = each.lock()) serve->fence(memory);
  }
}

Result<std::unique_ptr<Link>> TcpTransport::connect(LinkChannel& channel, std::string_view peer_hello) {
  STAGEWIRE_ASSIGN(const std::vector<TcpEndpoint> endpoints, decode_endpoints(peer_hello));
  if (threads_ == nullptr) {
    STAGEWIRE_ASSIGN(threads_, DataThreads::start(options_.data_threads, log_, metrics_));
  }
  return std::unique_ptr<Link>(
      std::make_unique<TcpLink>(options_, *threads_, source_, channel,
                                dial_order(endpoints, channel.peer_ip(), channel.same_host()), served_));
}

void TcpTransport::close() {
  if (threads_ != nullptr) threads_->stop();
}

}  // namespace stagewire
