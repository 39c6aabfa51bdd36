// The thread of an RDMA device that takes completions: it spins for a bounded time after the last one, then
// arms the completion channel and sleeps until the adapter, an asynchronous event or stop() wakes it. Owned
// by the device; add() and remove() are thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>

#include <stagewire/base/result.h>

#include "base/fd.h"
#include "base/log.h"
#include "transport/verbs/verbs_api.h"

namespace stagewire {

/// A request's wr_id has the number of its queue above this bit, and the request's own below.
inline constexpr unsigned kQueueShift = 32;

/// Whose completions they are.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  /// Poller thread; completions of this sink's queues, in the order in which the adapter gave them.
  virtual void on_completions(std::span<const ibv_wc> completions) = 0;
};

class DevicePoller {
 public:
  using OnEvent = std::function<void(const ibv_async_event&)>;

  /// Starts the thread. `on_event` runs on it. The context, queue and channel outlive the poller. Errors: io.
  static Result<std::unique_ptr<DevicePoller>> start(std::shared_ptr<VerbsApi> api, ibv_context* context,
                                                     ibv_cq* cq, ibv_comp_channel* channel,
                                                     std::chrono::microseconds spin, OnEvent on_event,
                                                     std::shared_ptr<Logger> log);
  ~DevicePoller();
  DevicePoller(const DevicePoller&) = delete;
  DevicePoller& operator=(const DevicePoller&) = delete;

  void add(std::uint32_t queue, std::shared_ptr<CompletionSink> sink);
  /// Completions that come for it later are dropped.
  void remove(std::uint32_t queue);
  /// Ends the thread. Any other thread; idempotent.
  void stop();

 private:
  DevicePoller(std::shared_ptr<VerbsApi> api, ibv_context* context, ibv_cq* cq, ibv_comp_channel* channel,
               std::chrono::microseconds spin, OnEvent on_event, std::shared_ptr<Logger> log);
  void run();
  /// True if there were any.
  bool poll_once();
  void sleep();
  std::shared_ptr<CompletionSink> sink_of(std::uint32_t queue);

  const std::shared_ptr<VerbsApi> api_;
  ibv_context* const context_;
  ibv_cq* const cq_;
  ibv_comp_channel* const channel_;
  const std::chrono::microseconds spin_;
  const OnEvent on_event_;
  const std::shared_ptr<Logger> log_;
  Fd wake_;
  ForkGuard fork_guard_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<CompletionSink>> sinks_;
  bool stopping_ = false;  // under mutex_
  // The thread's:
  bool broken_ = false;         // polling failed and was reported
  bool events_ended_ = false;   // the descriptor of events has hung up: the device is gone
  bool channel_ended_ = false;  // that of the completion channel
  std::thread thread_;
};

}  // namespace stagewire
