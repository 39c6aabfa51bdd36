// See queue_pair.h. The attributes that each transition needs are those of the ibv_modify_qp(3) page for RC.
#include "transport/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "transport/verbs/verbs_error.h"

namespace stagewire {

namespace {
constexpr std::uint8_t kMinRnrTimer = 12;  // 0.64 ms (InfiniBand specification, table 45)
}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(std::shared_ptr<VerbsDevice> device, Role role) {
  std::unique_ptr<QueuePair> pair(new QueuePair(std::move(device), role));
  STAGEWIRE_TRY(pair->make());
  return pair;
}

Result<std::vector<std::unique_ptr<QueuePair>>> QueuePair::create_all(
    const std::shared_ptr<VerbsDevice>& device, Role role, std::size_t count) {
  std::vector<std::unique_ptr<QueuePair>> pairs;
  for (std::size_t i = 0; i < count; ++i) {
    Result<std::unique_ptr<QueuePair>> pair = create(device, role);
    if (!pair.ok()) {
      device->return_queues(count - i - 1);  // the one that failed has given back its own
      return std::move(pair).error();
    }
    pairs.push_back(std::move(*pair));
  }
  return pairs;
}

QueuePair::QueuePair(std::shared_ptr<VerbsDevice> device, Role role)
    : device_(std::move(device)), role_(role), id_(device_->next_queue_id()) {}

QueuePair::~QueuePair() {
  if (const Status destroyed = destroy(); !destroyed.ok())
    device_->log().error(destroyed.error().to_string());
  device_->return_queues(1);
}

Status QueuePair::make() {
  const VerbsOptions& options = device_->options();
  const auto most_sge = static_cast<std::uint32_t>(std::max(device_->attributes().max_sge, 1));
  ibv_qp_init_attr init{};
  init.send_cq = device_->cq();
  init.recv_cq = device_->cq();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = role_ == Role::reads ? options.send_queue_depth + 1 : 1;
  init.cap.max_send_sge = role_ == Role::reads ? std::min(most_sge, kMaxPieces) : 1;
  init.cap.max_recv_wr = 1;
  init.cap.max_recv_sge = 1;
  qp_ = device_->create_queue_pair(init);
  if (qp_ == nullptr) return call_error(errno, "ibv_create_qp");
  // The driver may have given more; the completion queue has room for what was asked for.
  depth_ = options.send_queue_depth;
  max_sge_ = role_ == Role::reads ? std::min({most_sge, kMaxPieces, std::max(init.cap.max_send_sge, 1U)}) : 1;
  std::random_device random;
  local_.qpn = qp_->qp_num;
  local_.psn = random() & 0xFFFFFFU;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = options.pkey_index;
  attributes.port_num = device_->choice().port;
  attributes.qp_access_flags = role_ == Role::answers ? IBV_ACCESS_REMOTE_READ : 0;
  const int failed = device_->api().modify_qp(
      qp_, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (failed != 0) return call_error(failed, "moving a queue pair to INIT (ibv_modify_qp)");
  return {};
}

Status QueuePair::connect(const verbs_wire::Port& port, const verbs_wire::Queue& remote, std::uint8_t depth) {
  const VerbsOptions& options = device_->options();
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = static_cast<ibv_mtu>(std::min(device_->port().mtu, port.mtu));
  rtr.dest_qp_num = remote.qpn;
  rtr.rq_psn = remote.psn;
  rtr.max_dest_rd_atomic = role_ == Role::answers ? depth : 0;
  rtr.min_rnr_timer = kMinRnrTimer;
  rtr.ah_attr.port_num = device_->choice().port;
  rtr.ah_attr.sl = options.service_level;
  rtr.ah_attr.dlid = port.lid;
  const bool ethernet = device_->choice().link_layer == IBV_LINK_LAYER_ETHERNET;
  // The upper half of a GID is the subnet (InfiniBand specification, section 4.1.1).
  const bool same_subnet = std::equal(port.gid.begin(), port.gid.begin() + 8, device_->choice().gid.begin());
  if (ethernet || options.global_route || !same_subnet) {
    rtr.ah_attr.is_global = 1;
    std::memcpy(rtr.ah_attr.grh.dgid.raw, port.gid.data(), port.gid.size());
    rtr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_->choice().gid_index);
    rtr.ah_attr.grh.hop_limit = options.hop_limit;
    rtr.ah_attr.grh.traffic_class = options.traffic_class;
  }
  int failed = device_->api().modify_qp(qp_, rtr,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (failed != 0) return call_error(failed, "moving a queue pair to RTR (ibv_modify_qp)");
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = options.timeout;
  rts.retry_cnt = options.retry_count;
  rts.rnr_retry = options.rnr_retry;
  rts.sq_psn = local_.psn;
  rts.max_rd_atomic = role_ == Role::reads ? depth : 0;
  failed = device_->api().modify_qp(qp_, rts,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (failed != 0) return call_error(failed, "moving a queue pair to RTS (ibv_modify_qp)");
  return {};
}

Status QueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (const int failed = device_->api().modify_qp(qp_, attributes, IBV_QP_STATE); failed != 0)
    return call_error(failed, "moving a queue pair to ERR (ibv_modify_qp)");
  return {};
}

Status QueuePair::destroy() {
  if (qp_ == nullptr) return {};
  if (const int failed = device_->destroy_queue_pair(qp_); failed != 0)
    return call_error(failed, "ibv_destroy_qp");
  qp_ = nullptr;
  return {};
}

}  // namespace stagewire
