// Reads from queue pairs of other processes, and what those are told of this one's. See fake_verbs.h.
#include <algorithm>
#include <cstring>
#include <memory>

#include "fake_fabric.h"
#include "fake_verbs.h"

namespace stagewire::testing_support {

namespace {
// Of a request; small enough that a kill, a stop or an abort comes between two.
constexpr std::uint64_t kPiece = 64U << 10U;
}  // namespace

FakeVerbs::Qp* FakeVerbs::queue_pair_numbered(std::uint32_t number) const {
  for (const auto& [raw, qp] : qps_) {
    if (qp->raw.qp_num == number) return qp.get();
  }
  return nullptr;
}

bool FakeVerbs::is_far(const Qp& qp) const {
  return fabric_ != nullptr && queue_pair_numbered(qp.peer_qpn) == nullptr;
}

void FakeVerbs::carry_out_piece(Lock& lock, const Qp& qp) {
  const Request& first = qp.requests.front();
  const std::uint32_t number = qp.raw.qp_num;
  const std::uint64_t request_number = first.number;
  const std::uint64_t offset = first.done;
  const FabricRead read{.from = number,
                        .to = qp.peer_qpn,
                        .sq_psn = qp.sq_psn,
                        .global = qp.global,
                        .gid = qp.peer_gid,
                        .lid = qp.peer_lid,
                        .key = first.wr.wr.rdma.rkey,
                        .address = first.wr.wr.rdma.remote_addr,
                        .length = first.length()};
  const auto size = static_cast<std::size_t>(std::min(kPiece, read.length - offset));
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(size);
  lock.unlock();
  ibv_wc_status status = fabric_->fetch(read, offset, {memory.get(), size});
  lock.lock();
  // The queue pair may be gone or in ERR by now, and its request flushed: then these bytes came too late, and
  // nothing is written.
  Qp* own = queue_pair_numbered(number);
  if (own == nullptr || own->raw.state != IBV_QPS_RTS || own->requests.empty()) return;
  Request& request = own->requests.front();
  if (request.number != request_number || request.done != offset) return;
  if (own->device->facts.state != IBV_PORT_ACTIVE) status = IBV_WC_RETRY_EXC_ERR;
  if (status == IBV_WC_SUCCESS) status = write_piece(*own, request, {memory.get(), size});
  if (status == IBV_WC_SUCCESS) {
    request.done += size;
    if (request.done < read.length) return;
  }
  const Request finished = std::move(request);
  own->requests.pop_front();
  finish(*own, finished, status);
}

ibv_wc_status FakeVerbs::write_piece(const Qp& qp, const Request& request, std::span<const std::byte> bytes) {
  std::uint64_t skipped = request.done;
  for (const ibv_sge& piece : request.pieces) {
    if (find_key(qp.raw.pd, piece.lkey, piece.addr, piece.length, IBV_ACCESS_LOCAL_WRITE) == nullptr)
      return IBV_WC_LOC_PROT_ERR;
    const std::uint64_t before = std::min<std::uint64_t>(skipped, piece.length);
    skipped -= before;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(piece.length - before, bytes.size()));
    if (size == 0) continue;
    std::memcpy(reinterpret_cast<std::byte*>(piece.addr + before), bytes.data(), size);
    bytes = bytes.subspan(size);
  }
  return IBV_WC_SUCCESS;
}

std::uint32_t FakeVerbs::number_for(std::uint32_t& next) {
  return fabric_ != nullptr ? fabric_->next_number() : next++;
}

void FakeVerbs::announce(const Qp& qp) {
  if (fabric_ == nullptr) return;
  FabricQueuePair facts{.number = qp.raw.qp_num,
                        .peer = qp.peer_qpn,
                        .rq_psn = qp.rq_psn,
                        .state = qp.raw.state,
                        .remote_read = (qp.access & IBV_ACCESS_REMOTE_READ) != 0,
                        .port_active = qp.device->facts.state == IBV_PORT_ACTIVE,
                        .lid = qp.device->facts.lid,
                        .gids = {},
                        .pd = qp.raw.pd};
  for (const auto& [type, gid] : qp.device->facts.gids) facts.gids.push_back(gid);
  fabric_->set(facts);
}
void FakeVerbs::announce_all(const Device& device) {
  for (const auto& [raw, qp] : qps_) {
    if (qp->device == &device) announce(*qp);
  }
}
void FakeVerbs::announce(const Mr& mr) {
  if (fabric_ == nullptr || (mr.access & IBV_ACCESS_REMOTE_READ) == 0) return;
  fabric_->add({.key = mr.raw.rkey, .pd = mr.raw.pd, .address = mr.raw.addr, .length = mr.raw.length});
}
void FakeVerbs::withdraw(const Qp& qp) {
  if (fabric_ != nullptr) fabric_->remove_queue_pair(qp.raw.qp_num);
}
void FakeVerbs::withdraw(const Mr& mr) {
  if (fabric_ != nullptr) fabric_->remove_registration(mr.raw.rkey);
}

}  // namespace stagewire::testing_support
