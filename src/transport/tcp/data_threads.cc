// See data_threads.h.
#include "transport/tcp/data_threads.h"

#include <exception>
#include <string>
#include <utility>

namespace stagewire {

TcpCounters::TcpCounters(Metrics& metrics)
    : bytes_read(
          metrics.counter("stagewire_tcp_read_bytes_total", "Bytes received into destinations over tcp")),
      bytes_served(metrics.counter("stagewire_tcp_served_bytes_total", "Bytes sent to readers over tcp")),
      bytes_discarded(metrics.counter("stagewire_tcp_discarded_bytes_total",
                                      "Bytes received over tcp after their read had been aborted")),
      chunks_repeated(metrics.counter("stagewire_tcp_repeated_chunks_total",
                                      "Chunks asked for again because their data connection broke")),
      connections_broken(
          metrics.counter("stagewire_tcp_broken_connections_total", "Data connections that broke or failed")),
      protocol_errors(metrics.counter("stagewire_tcp_protocol_errors_total",
                                      "Data connections closed because the peer broke the protocol")) {}

DataThreads::DataThreads(std::shared_ptr<Logger> log, Metrics& metrics)
    : log_(std::move(log)), counters_(metrics) {}

Result<std::unique_ptr<DataThreads>> DataThreads::start(unsigned count, std::shared_ptr<Logger> log,
                                                        Metrics& metrics) {
  std::unique_ptr<DataThreads> threads(new DataThreads(std::move(log), metrics));
  try {
    for (unsigned i = 0; i < count; ++i) {
      threads->loops_.push_back(std::make_unique<EventLoop>("sw-data-" + std::to_string(i)));
    }
  } catch (const std::exception& error) {
    return Error(ErrorKind::io, std::string("cannot start a tcp data thread: ") + error.what());
  }
  return threads;
}

void DataThreads::stop() {
  for (const auto& loop : loops_) loop->stop();
}

}  // namespace stagewire
