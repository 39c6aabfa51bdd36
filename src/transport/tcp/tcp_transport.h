// The transport that works everywhere: the reader asks for chunks over data connections that it dialled, and
// the sender streams them. Owned by the node, on its loop thread; bytes move on data threads of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/metrics.h>

#include "base/log.h"
#include "transport/tcp/data_threads.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/tcp_options.h"
#include "transport/transport.h"

namespace stagewire {

class TcpTransport final : public Transport {
 public:
  /// Errors: config, naming the option and its bounds. `source` and `metrics` outlive the transport.
  static Result<std::unique_ptr<TcpTransport>> create(TcpOptions options, SourceAccess& source,
                                                      std::shared_ptr<Logger> log, Metrics& metrics);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  /// The node's listening addresses, told to peers from the next hello() on.
  void set_endpoints(std::vector<TcpEndpoint> endpoints) { endpoints_ = std::move(endpoints); }

  std::string_view name() const override { return "tcp"; }
  Viability viability() const override;
  int rank() const override { return 100; }
  std::string hello() const override { return encode_endpoints(endpoints_); }
  Result<MemoryToken> export_memory(const ExportedMemory& memory) override;
  // Every chunk is pinned under its lease, and its pin holds the memory: what is left to do is to let go of
  // chunks whose reader does not take them.
  void forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) override;
  Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) override;
  void close() override;

 private:
  TcpTransport(TcpOptions options, SourceAccess& source, std::shared_ptr<Logger> log, Metrics& metrics);

  TcpOptions options_;
  SourceAccess& source_;
  std::shared_ptr<Logger> log_;
  Metrics& metrics_;
  std::vector<TcpEndpoint> endpoints_;
  std::unique_ptr<DataThreads> threads_;  // made with the first link
  std::shared_ptr<ServedConnections> served_ = std::make_shared<ServedConnections>();
};

}  // namespace stagewire
