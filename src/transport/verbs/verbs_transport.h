// The transport over RDMA adapters: the reader's adapter fetches bytes from the sender's registered memory
// with RDMA READ. Owns the choice of device, the device in use and what is registered with it; opens the
// device again when it was lost. Owned by the node, on its loop thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/metrics.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/worker.h"
#include "transport/transport.h"
#include "transport/verbs/device_choice.h"
#include "transport/verbs/registrations.h"
#include "transport/verbs/verbs_counters.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_options.h"

namespace stagewire {

class VerbsLink;

/// What the transport and its links have in common. Loop thread, but for what is thread-safe by itself.
struct VerbsHost {
  VerbsOptions options;
  EventLoop& loop;
  LoopPost post;
  std::shared_ptr<Logger> log;
  std::shared_ptr<VerbsCounters> counters;
  std::shared_ptr<VerbsDevice> device;  ///< null while there is none
  std::string problem;                  ///< why there is none, or it cannot be used now; empty: it can
  std::unique_ptr<Registrations> registrations;
  std::set<VerbsLink*> links;
};

class VerbsTransport final : public Transport {
 public:
  /// How the device's library is reached; tests put theirs here.
  using OpenApi = std::function<Result<std::shared_ptr<VerbsApi>>()>;

  /// Opens the library and the device, which takes some milliseconds; without either the transport exists
  /// and says why it is not viable. `loop`, `post` and `metrics` outlive it. Errors: config (an option out of
  /// its bounds, a device that does not exist).
  static Result<std::unique_ptr<VerbsTransport>> create(const VerbsOptions& options, EventLoop& loop,
                                                        LoopPost post, std::shared_ptr<Logger> log,
                                                        Metrics& metrics, const OpenApi& open_api);
  ~VerbsTransport() override;
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  std::string_view name() const override { return "verbs"; }
  Viability viability() const override;
  int rank() const override { return 50; }
  std::string hello() const override;
  Result<MemoryToken> export_memory(const ExportedMemory& memory) override;
  void forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) override;
  void add_receive_pool(const std::shared_ptr<Pool>& pool) override;
  std::string explain() const override;
  Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) override;
  void close() override;

 private:
  VerbsTransport(const VerbsOptions& options, EventLoop& loop, LoopPost post, std::shared_ptr<Logger> log,
                 Metrics& metrics);
  struct Opened {
    DeviceDecision decision;
    std::shared_ptr<VerbsDevice> device;
    std::optional<Error> error;
    std::uint64_t number = 0;  ///< of this opening; its events carry it
  };
  /// Finds and opens a device. Any thread; blocks.
  Opened open_device();
  void adopt(Opened opened);
  void on_event(std::uint64_t opening, const ibv_async_event& event);
  void check_gid();
  void set_problem(std::string problem);
  void lose_device(const std::string& why);
  void arm_reopen();
  void reopen();
  void arm_register();
  void retire_when_quiet();

  VerbsHost host_;
  std::shared_ptr<VerbsApi> api_;
  DeviceDecision decision_;
  std::string not_viable_;  // why there will be no device; empty: there is one, or it is looked for
  std::atomic<std::uint64_t> next_opening_{1};
  std::uint64_t opening_ = 0;  // of the device in use
  std::vector<std::shared_ptr<VerbsDevice>> retired_;
  std::chrono::milliseconds reopen_delay_;
  EventLoop::TimerId reopen_timer_ = 0;
  EventLoop::TimerId retire_timer_ = 0;
  EventLoop::TimerId register_timer_ = 0;
  bool closed_ = false;
  Worker opener_{"sw-verbs-open"};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stagewire
