// The event loops that move bytes for the tcp transport. Made with the node's first tcp link, ended by the
// transport. Connections are dealt out in turn and stay on their thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <stagewire/base/metrics.h>
#include <stagewire/base/result.h>

#include "base/event_loop.h"
#include "base/log.h"

namespace stagewire {

/// What the transport counts. References into the node's Metrics; any thread.
struct TcpCounters {
  explicit TcpCounters(Metrics& metrics);
  Counter& bytes_read;
  Counter& bytes_served;
  Counter& bytes_discarded;
  Counter& chunks_repeated;
  Counter& connections_broken;
  Counter& protocol_errors;
};

class DataThreads {
 public:
  /// Errors: io (a thread cannot be started).
  static Result<std::unique_ptr<DataThreads>> start(unsigned count, std::shared_ptr<Logger> log,
                                                    Metrics& metrics);
  DataThreads(const DataThreads&) = delete;
  DataThreads& operator=(const DataThreads&) = delete;

  EventLoop& at(std::size_t index) noexcept { return *loops_[index % loops_.size()]; }
  /// The next index in turn. Loop thread.
  std::size_t next() noexcept { return next_++; }
  TcpCounters& counters() noexcept { return counters_; }
  Logger& log() noexcept { return *log_; }
  /// Joins all threads. Connections must be closed by then.
  void stop();

 private:
  DataThreads(std::shared_ptr<Logger> log, Metrics& metrics);

  std::shared_ptr<Logger> log_;
  TcpCounters counters_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::size_t next_ = 0;
};

}  // namespace stagewire
