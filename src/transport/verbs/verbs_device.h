// An RDMA device in use: its context, protection domain, completion queue and threads, closed together. Made
// by the transport, shared with everything that must not outlive it. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <stagewire/base/result.h>

#include "base/log.h"
#include "transport/verbs/device_choice.h"
#include "transport/verbs/device_helper.h"
#include "transport/verbs/device_poller.h"
#include "transport/verbs/read_plan.h"
#include "transport/verbs/verbs_options.h"
#include "transport/verbs/verbs_wire.h"

namespace stagewire {

/// Registrations of one stretch of memory. Made and ended on the helper thread (deregistering may take long).
struct Registration {
  std::vector<ibv_mr*> pieces;
  std::uint64_t piece = 0;  ///< bytes of each but the last
};

class VerbsDevice : public std::enable_shared_from_this<VerbsDevice> {
 public:
  /// Blocks for some milliseconds. `on_event` runs on the poller thread. Errors: not_viable, io.
  static Result<std::shared_ptr<VerbsDevice>> open(std::shared_ptr<VerbsApi> api, DeviceChoice choice,
                                                   VerbsOptions options, std::shared_ptr<Logger> log,
                                                   const DevicePoller::OnEvent& on_event);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  VerbsApi& api() noexcept { return *api_; }
  ibv_cq* cq() const noexcept { return cq_; }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  const DeviceChoice& choice() const noexcept { return choice_; }
  const VerbsOptions& options() const noexcept { return options_; }
  DeviceHelper& helper() noexcept { return *helper_; }
  DevicePoller& poller() noexcept { return *poller_; }
  Logger& log() noexcept { return *log_; }
  /// As peers need to know it.
  verbs_wire::Port port() const;
  /// Bytes that one RDMA READ may have here.
  std::uint32_t max_message() const noexcept { return max_message_; }
  /// Reads that a queue pair of ours may have on the way, and those it answers at once; 1 to 255.
  std::uint8_t initiator_depth() const noexcept;
  std::uint8_t responder_depth() const noexcept;

  /// Whether the GID or LID that was chosen is still the port's. Asks the driver: helper thread.
  bool still_has_address();

  /// Takes `count` of the queue pairs that may exist in all; false if that many are not left.
  bool reserve_queues(std::size_t count) noexcept;
  void return_queues(std::size_t count) noexcept;
  std::size_t queues() const noexcept { return queues_.load(std::memory_order_relaxed); }
  /// A number that no other queue of this device ever had.
  std::uint32_t next_queue_id() noexcept { return next_queue_.fetch_add(1, std::memory_order_relaxed); }

  /// Registers memory in pieces of at most min(max_mr_size, options.mr_piece), several at a time. Blocks:
  /// helper thread (or the caller's while a node starts). `what` stands in errors. Errors: io.
  Result<Registration> register_memory(void* address, std::uint64_t size, bool for_peers,
                                       std::string_view what);
  /// Ends registrations. Blocks. False (and logged) if the driver keeps one: then the adapter may still reach
  /// that memory, until close() has ended it. True after close(), which has ended them all.
  bool deregister(const Registration& registration);
  /// Keeps `hold` until close() has closed the device: the owner of memory that could not be deregistered.
  void hold_until_closed(std::shared_ptr<const void> hold);

  /// Makes a queue pair, and destroys one: as the API does, but close() sees to those that are left. Block.
  ibv_qp* create_queue_pair(ibv_qp_init_attr& attributes);
  int destroy_queue_pair(ibv_qp* qp);

  /// Stops the threads, then destroys and closes everything that is left. No read may be running. Idempotent;
  /// any thread but the device's own.
  void close();

 private:
  VerbsDevice(std::shared_ptr<VerbsApi> api, DeviceChoice choice, VerbsOptions options,
              std::shared_ptr<Logger> log);
  Status set_up(const DevicePoller::OnEvent& on_event);
  Status open_context();

  const std::shared_ptr<VerbsApi> api_;
  const DeviceChoice choice_;
  const VerbsOptions options_;
  const std::shared_ptr<Logger> log_;
  ForkGuard fork_guard_;
  ibv_device_attr attributes_{};
  std::uint32_t max_message_ = 0;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::size_t max_queues_ = 0;
  std::atomic<std::size_t> queues_{0};
  std::atomic<std::uint32_t> next_queue_{1};
  std::unique_ptr<DeviceHelper> helper_;
  std::unique_ptr<DevicePoller> poller_;
  std::atomic<bool> closed_{false};
  std::mutex live_mutex_;  // never held in a call of the API
  std::set<ibv_mr*> live_registrations_;
  std::set<ibv_qp*> live_queue_pairs_;
  std::vector<std::shared_ptr<const void>> held_until_closed_;  // guarded by live_mutex_
};

}  // namespace stagewire
