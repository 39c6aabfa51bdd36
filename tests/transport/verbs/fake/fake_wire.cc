// Queue pairs, completion queues and what becomes of requests. See fake_verbs.h.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_verbs.h"

namespace stagewire::testing_support {

namespace {
template <typename Table, typename Raw>
auto& must_have(Table& table, const Raw* raw, const char* what) {
  const auto found = table.find(raw);
  if (found == table.end()) misuse(std::string("a ") + what + " was used that does not exist (any more)");
  return *found->second;
}
}  // namespace

// --- Completion queues.

ibv_comp_channel* FakeVerbs::create_comp_channel(ibv_context* context) {
  const std::lock_guard lock(mutex_);
  auto channel = std::make_unique<Channel>();
  channel->fd = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  channel->raw.context = context;
  channel->raw.fd = channel->fd.get();
  ibv_comp_channel* raw = &channel->raw;
  channels_[raw] = std::move(channel);
  return raw;
}
int FakeVerbs::destroy_comp_channel(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  const Channel& own = must_have(channels_, channel, "completion channel");
  for (const auto& [raw, cq] : cqs_) {
    if (cq->channel == &own) return EBUSY;
  }
  channels_.erase(channel);
  return 0;
}
ibv_cq* FakeVerbs::create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  if (entries > must_have(contexts_, context, "context").device->facts.max_cqe) {
    errno = EINVAL;
    return nullptr;
  }
  auto cq = std::make_unique<Cq>();
  cq->raw.context = context;
  cq->capacity = static_cast<std::size_t>(entries);
  cq->channel = &must_have(channels_, channel, "completion channel");
  ibv_cq* raw = &cq->raw;
  cqs_[raw] = std::move(cq);
  return raw;
}
int FakeVerbs::destroy_cq(ibv_cq* cq) {
  const std::lock_guard lock(mutex_);
  const Cq& own = must_have(cqs_, cq, "completion queue");
  for (const auto& [raw, qp] : qps_) {
    if (qp->cq == &own) return EBUSY;
  }
  std::erase_if(withheld_, [&](const auto& each) { return each.first == &own; });
  cqs_.erase(cq);
  return 0;
}
int FakeVerbs::poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  const std::lock_guard lock(mutex_);
  Cq& own = must_have(cqs_, cq, "completion queue");
  int count = 0;
  while (count < entries && !own.entries.empty()) {
    const ibv_wc completion = own.entries.front();
    own.entries.pop_front();
    completions[count++] = completion;
    // Polling a completion frees the slots of its request and of all before it.
    for (const auto& [raw, qp] : qps_) {
      if (qp->raw.qp_num != completion.qp_num) continue;
      while (!qp->delivered.empty()) {
        const auto [wr_id, number] = qp->delivered.front();
        qp->delivered.pop_front();
        qp->reclaimed = number + 1;
        if (wr_id == completion.wr_id) break;
      }
    }
  }
  return count;
}
int FakeVerbs::req_notify_cq(ibv_cq* cq) {
  const std::lock_guard lock(mutex_);
  must_have(cqs_, cq, "completion queue").armed = true;
  return 0;
}
int FakeVerbs::next_cq_event(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  return ::read(must_have(channels_, channel, "completion channel").fd.get(), &count, sizeof count) > 0
             ? 0
             : EAGAIN;
}
void FakeVerbs::deliver(Cq& cq, const ibv_wc& completion) {
  if (completions_held_) {
    withheld_.emplace_back(&cq, completion);
    return;
  }
  if (cq.entries.size() >= cq.capacity) misuse("a completion queue was overrun");
  cq.entries.push_back(completion);
  if (!std::exchange(cq.armed, false)) return;
  const std::uint64_t one = 1;
  static_cast<void>(::write(cq.channel->fd.get(), &one, sizeof one));
}

// --- Queue pairs.

ibv_qp* FakeVerbs::create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  const std::lock_guard lock(mutex_);
  if (fail_queue_pairs_.second != 0) {
    --fail_queue_pairs_.second;
    errno = fail_queue_pairs_.first;
    return nullptr;
  }
  auto qp = std::make_unique<Qp>();
  must_have(pds_, pd, "protection domain");
  qp->device = must_have(contexts_, pd->context, "context").device;
  if (attributes.qp_type != IBV_QPT_RC) misuse("a queue pair that is not reliable-connected");
  if (attributes.cap.max_send_sge > static_cast<std::uint32_t>(qp->device->facts.max_sge)) {
    errno = EINVAL;
    return nullptr;
  }
  qp->cq = &must_have(cqs_, attributes.send_cq, "completion queue");
  qp->max_send = attributes.cap.max_send_wr;
  qp->max_sge = attributes.cap.max_send_sge;
  qp->raw.context = pd->context;
  qp->raw.pd = pd;
  qp->raw.qp_num = number_for(next_qpn_);
  qp->raw.state = IBV_QPS_RESET;
  announce(*qp);
  ibv_qp* raw = &qp->raw;
  qps_[raw] = std::move(qp);
  return raw;
}

int FakeVerbs::modify_qp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  Lock lock(mutex_);
  if ((mask & IBV_QP_STATE) == 0) return EINVAL;
  pass_gate(lock, shut_modify_[attributes.qp_state]);
  Qp& own = must_have(qps_, qp, "queue pair");
  if (const auto failing = fail_modify_.find(attributes.qp_state);
      failing != fail_modify_.end() && failing->second != 0) {
    return failing->second;
  }
  const auto needs = [&](ibv_qp_state before, int wanted) {
    if (own.raw.state != before)
      misuse("a queue pair was moved to " + std::to_string(attributes.qp_state) + " from " +
             std::to_string(own.raw.state));
    if ((mask & wanted) != wanted) misuse("a queue pair was moved without all attributes that need be");
  };
  switch (attributes.qp_state) {
    case IBV_QPS_INIT:
      needs(IBV_QPS_RESET, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      if ((attributes.qp_access_flags & ~static_cast<unsigned>(IBV_ACCESS_REMOTE_READ)) != 0)
        misuse("a queue pair allows more than remote reads");
      own.access = attributes.qp_access_flags;
      break;
    case IBV_QPS_RTR:
      needs(IBV_QPS_INIT, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      own.peer_qpn = attributes.dest_qp_num;
      own.rq_psn = attributes.rq_psn;
      own.global = attributes.ah_attr.is_global != 0;
      own.peer_lid = attributes.ah_attr.dlid;
      std::memcpy(own.peer_gid.data(), attributes.ah_attr.grh.dgid.raw, own.peer_gid.size());
      to_rtr_.push_back(attributes);
      break;
    case IBV_QPS_RTS:
      needs(IBV_QPS_RTR,
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      own.sq_psn = attributes.sq_psn;
      to_rts_.push_back(attributes);
      break;
    case IBV_QPS_ERR:
      to_error(own);
      changed_.notify_all();
      return 0;
    default:
      return EINVAL;
  }
  own.raw.state = attributes.qp_state;
  announce(own);
  changed_.notify_all();
  return 0;
}

int FakeVerbs::destroy_qp(ibv_qp* qp) {
  const std::lock_guard lock(mutex_);
  const Qp& own = must_have(qps_, qp, "queue pair");
  if (fail_destroy_.second != 0) {
    --fail_destroy_.second;
    changed_.notify_all();
    return fail_destroy_.first;
  }
  const std::uint32_t number = own.raw.qp_num;
  std::erase_if(withheld_, [&](const auto& each) { return each.second.qp_num == number; });
  std::erase_if(own.cq->entries, [&](const ibv_wc& each) { return each.qp_num == number; });
  withdraw(own);
  qps_.erase(qp);
  changed_.notify_all();
  return 0;
}

int FakeVerbs::post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const std::lock_guard lock(mutex_);
  Qp& own = must_have(qps_, qp, "queue pair");
  if (own.raw.state != IBV_QPS_RTS && own.raw.state != IBV_QPS_ERR) {
    *bad = first;
    misuse("a request was posted to a queue pair in state " + std::to_string(own.raw.state));
  }
  ++chains_;
  for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
    if (each->opcode != IBV_WR_RDMA_READ) misuse("something other than an RDMA READ was posted");
    if (own.posted - own.reclaimed >= own.max_send) misuse("requests were posted beyond the queue's depth");
    if (static_cast<std::uint32_t>(each->num_sge) > own.max_sge) misuse("a request has too many pieces");
    Request request;
    request.wr = *each;
    request.pieces.assign(each->sg_list, each->sg_list + each->num_sge);
    request.number = own.posted++;
    if ((each->send_flags & IBV_SEND_SIGNALED) != 0) ++signalled_;
    ++posted_;
    own.requests.push_back(std::move(request));
  }
  if (own.raw.state == IBV_QPS_ERR && !flushes_held_) flush(own);
  changed_.notify_all();
  return 0;
}

// --- The wire.

void FakeVerbs::run() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || (!held_ && waiting() != 0); });
    if (ending_) return;
    carry_out_one(lock);
    lock.unlock();  // whoever waits for the mutex gets a turn between two requests
    std::this_thread::yield();
    lock.lock();
  }
}

bool FakeVerbs::carry_out_one(Lock& lock) {
  std::vector<Qp*> busy;
  for (const auto& [raw, qp] : qps_) {
    if (qp->raw.state == IBV_QPS_RTS && !qp->requests.empty()) busy.push_back(qp.get());
  }
  if (busy.empty()) return false;
  Qp& qp = *busy[random_() % busy.size()];
  if (failures_.empty() && is_far(qp)) {
    carry_out_piece(lock, qp);
    return true;
  }
  const Request request = std::move(qp.requests.front());
  qp.requests.pop_front();
  carry_out(qp, request);
  return true;
}

void FakeVerbs::carry_out(Qp& qp, const Request& request) {
  ibv_wc_status status = IBV_WC_SUCCESS;
  if (!failures_.empty()) {
    status = failures_.front();
    failures_.pop_front();
  } else {
    status = transfer(qp, request, false);
  }
  finish(qp, request, status);
}

void FakeVerbs::finish(Qp& qp, const Request& request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS) {
    if ((request.wr.send_flags & IBV_SEND_SIGNALED) != 0) complete(qp, request, status);
    return;
  }
  complete(qp, request, status);
  to_error(qp);
}

FakeVerbs::Mr* FakeVerbs::find_key(const ibv_pd* pd, std::uint32_t key, std::uint64_t address,
                                   std::uint64_t length, unsigned access) {
  for (const auto& [raw, mr] : mrs_) {
    const bool named = (access & IBV_ACCESS_REMOTE_READ) != 0 ? mr->raw.rkey == key : mr->raw.lkey == key;
    if (!named || mr->raw.pd != pd) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(mr->raw.addr);
    const bool inside =
        address >= begin && length <= mr->raw.length && address - begin <= mr->raw.length - length;
    return inside && (mr->access & access) == access ? mr.get() : nullptr;
  }
  return nullptr;
}

ibv_wc_status FakeVerbs::transfer(Qp& qp, const Request& request, bool late) {
  const Qp* peer = queue_pair_numbered(qp.peer_qpn);
  const auto has_gid = [&](const Device& device) {
    const auto& gids = device.facts.gids;
    return std::any_of(gids.begin(), gids.end(), [&](const auto& gid) { return gid.second == qp.peer_gid; });
  };
  const bool answers = peer != nullptr && peer->peer_qpn == qp.raw.qp_num && peer->rq_psn == qp.sq_psn &&
                       (qp.global ? has_gid(*peer->device) : peer->device->facts.lid == qp.peer_lid) &&
                       (peer->raw.state == IBV_QPS_RTR || peer->raw.state == IBV_QPS_RTS) &&
                       peer->device->facts.state == IBV_PORT_ACTIVE &&
                       qp.device->facts.state == IBV_PORT_ACTIVE;
  if (!answers) return IBV_WC_RETRY_EXC_ERR;
  if ((peer->access & IBV_ACCESS_REMOTE_READ) == 0) return IBV_WC_REM_INV_REQ_ERR;
  if (find_key(peer->raw.pd, request.wr.wr.rdma.rkey, request.wr.wr.rdma.remote_addr, request.length(),
               IBV_ACCESS_REMOTE_READ) == nullptr) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  // Numbers of memory that the registrations above hold.
  const auto* from = reinterpret_cast<const std::byte*>(request.wr.wr.rdma.remote_addr);
  for (const ibv_sge& piece : request.pieces) {
    if (find_key(qp.raw.pd, piece.lkey, piece.addr, piece.length, IBV_ACCESS_LOCAL_WRITE) == nullptr)
      return IBV_WC_LOC_PROT_ERR;
    if (late) {
      // What an adapter that was too slow would still write: other bytes, so that it shows in any case.
      std::memset(reinterpret_cast<std::byte*>(piece.addr), 0xDD, piece.length);
    } else {
      std::memcpy(reinterpret_cast<std::byte*>(piece.addr), from, piece.length);
    }
    from += piece.length;
  }
  return IBV_WC_SUCCESS;
}

void FakeVerbs::complete(Qp& qp, const Request& request, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = request.wr.wr_id;
  completion.status = status;
  completion.opcode = IBV_WC_RDMA_READ;
  completion.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x77;
  completion.qp_num = qp.raw.qp_num;
  qp.delivered.emplace_back(request.wr.wr_id, request.number);
  deliver(*qp.cq, completion);
}

void FakeVerbs::to_error(Qp& qp) {
  qp.raw.state = IBV_QPS_ERR;
  announce(qp);
  if (!flushes_held_) flush(qp);
}

void FakeVerbs::flush(Qp& qp) {
  while (!qp.requests.empty()) {
    const Request request = std::move(qp.requests.front());
    qp.requests.pop_front();
    complete(qp, request, IBV_WC_WR_FLUSH_ERR);
  }
}

}  // namespace stagewire::testing_support
