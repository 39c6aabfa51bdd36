// One reliable-connected queue pair and its way through the states. Every method blocks, as the driver does:
// helper thread. RDMA READ is the only thing that is ever posted to one or allowed by one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <stagewire/base/result.h>

#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_wire.h"

namespace stagewire {

/// Local pieces of one request, at most: more gain nothing and cost memory.
inline constexpr std::uint32_t kMaxPieces = 16;

class QueuePair {
 public:
  enum class Role : std::uint8_t {
    reads,    ///< ours to post to; the peer may do nothing with it
    answers,  ///< the peer's to read through; nothing is posted
  };

  /// Makes it and moves it to INIT. Needs a queue reserved at the device, which the destructor gives back.
  /// Errors: io.
  static Result<std::unique_ptr<QueuePair>> create(std::shared_ptr<VerbsDevice> device, Role role);
  /// `count` of them, or none. All of them have been reserved.
  static Result<std::vector<std::unique_ptr<QueuePair>>> create_all(
      const std::shared_ptr<VerbsDevice>& device, Role role, std::size_t count);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// Moves it to RTR and RTS, towards `remote` at `port`. `depth`: reads on the way at once, as both ends
  /// agreed. Errors: io, with what to look at.
  Status connect(const verbs_wire::Port& port, const verbs_wire::Queue& remote, std::uint8_t depth);
  /// Stops it: what is posted is flushed. Errors: io.
  Status stop();
  /// Destroys it; from then on the adapter touches nothing on its behalf. Errors: io (it lives on).
  Status destroy();

  const std::shared_ptr<VerbsDevice>& device() const noexcept { return device_; }
  ibv_qp* get() const noexcept { return qp_; }
  /// Names it in wr_id; unique on the device.
  std::uint32_t id() const noexcept { return id_; }
  /// Where the peer finds it.
  verbs_wire::Queue local() const noexcept { return local_; }
  /// Requests that can be posted at once, without the sentinel.
  std::uint32_t depth() const noexcept { return depth_; }
  std::uint32_t max_sge() const noexcept { return max_sge_; }

 private:
  QueuePair(std::shared_ptr<VerbsDevice> device, Role role);
  Status make();

  const std::shared_ptr<VerbsDevice> device_;
  const Role role_;
  ibv_qp* qp_ = nullptr;
  std::uint32_t id_ = 0;
  verbs_wire::Queue local_;
  std::uint32_t depth_ = 0;
  std::uint32_t max_sge_ = 1;
};

}  // namespace stagewire
