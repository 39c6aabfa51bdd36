// The making, replacing and failing of connections to read through, and the keys that reads need. See
// verbs_link.h. What blocks runs on the device's helper and comes back to the loop.
#include <algorithm>
#include <string>
#include <utility>

#include "transport/verbs/verbs_link.h"

namespace stagewire {

namespace {

constexpr std::string_view kName = "verbs";

std::string layer_name(std::uint8_t layer) {
  return layer == IBV_LINK_LAYER_ETHERNET ? "RoCE (Ethernet)" : "InfiniBand";
}
bool is_ipv4(const std::array<std::uint8_t, 16>& gid) {
  return gid[10] == 0xFF && gid[11] == 0xFF && gid[0] == 0;
}

}  // namespace

std::string VerbsLink::mismatch() const {
  if (!peer_.usable) return "the peer has no RDMA device that it can use";
  return mismatch_with(peer_.port);
}

std::string VerbsLink::mismatch_with(const verbs_wire::Port& peers) const {
  if (!host_.device) return {};
  const verbs_wire::Port own = host_.device->port();
  if (own.link_layer != peers.link_layer) {
    return "this node's port is " + layer_name(own.link_layer) + " and the peer's is " +
           layer_name(peers.link_layer);
  }
  if (own.link_layer == IBV_LINK_LAYER_ETHERNET && is_ipv4(own.gid) != is_ipv4(peers.gid)) {
    return "this node's GID is " + to_string(own.gid) + " and the peer's is " + to_string(peers.gid) +
           ": one is IPv4 and the other IPv6 (rdma_gid_index chooses another)";
  }
  return {};
}

void VerbsLink::connect_missing() {
  if (closed_ || pending_ || !reads_ || !mismatch().empty()) return;
  const std::size_t have = reads_->queues();
  if (have >= host_.options.queue_pairs) return;
  if (have == 0) {
    state_ = State::connecting;
    // The peer may have another device since: old keys are worth nothing then.
    forget_keys();
    request_keys();
  }
  const std::size_t count = host_.options.queue_pairs - have;
  const std::shared_ptr<VerbsDevice> device = host_.device;
  const std::uint64_t request = next_request_++;
  if (!device->reserve_queues(count)) {
    return note_failure(Error(ErrorKind::busy,
                              "this node has as many queue pairs as it may have "
                              "(rdma_max_queue_pairs is " +
                                  std::to_string(host_.options.max_queue_pairs) + ")"));
  }
  pending_.emplace();
  pending_->request = request;
  pending_->timer =
      call_in(host_.options.connect_timeout, guarded([this, request] { give_up_connecting(request); }));
  device->helper().post("creating queue pairs", [this, device, count, request, post = host_.post,
                                                 alive = std::weak_ptr(alive_)] {
    auto made = std::make_shared<Result<Pairs>>(QueuePair::create_all(device, QueuePair::Role::reads, count));
    post([this, request, made, alive] {
      if (alive.lock()) return on_created(request, std::move(*made));
      if (made->ok()) destroy(std::move(**made));
    });
  });
}

void VerbsLink::on_created(std::uint64_t request, Result<Pairs> made) {
  if (!pending_ || pending_->request != request) {
    if (made.ok()) destroy(std::move(*made));
    return;
  }
  if (!made.ok()) return note_failure(made.error());
  pending_->pairs = std::move(*made);
  verbs_wire::Connect message;
  message.request = request;
  message.port = host_.device->port();
  message.depth = host_.device->initiator_depth();
  for (const auto& pair : pending_->pairs) message.queues.push_back(pair->local());
  channel_.send(verbs_wire::encode(message));
}

void VerbsLink::drop(std::uint64_t request, const std::vector<verbs_wire::Queue>& remotes) {
  for (const verbs_wire::Queue& queue : remotes)
    channel_.send(verbs_wire::encode(verbs_wire::Drop{request, queue.qpn}));
}

Status VerbsLink::on_connected(verbs_wire::Connected message) {
  if (message.request == 0 || message.request >= next_request_) {
    return Error(ErrorKind::protocol, "the peer answered a connection that was not asked for");
  }
  if (!pending_ || pending_->request != message.request || pending_->answered) {
    // Given up meanwhile: the peer need not keep its end.
    drop(message.request, message.queues);
    return {};
  }
  if (message.queues.size() != pending_->pairs.size()) {
    return Error(ErrorKind::protocol, "the peer answered " + std::to_string(pending_->pairs.size()) +
                                          " queue pairs with " + std::to_string(message.queues.size()));
  }
  if (const std::string why = mismatch_with(message.port); !why.empty()) {
    drop(message.request, message.queues);
    note_failure(Error(ErrorKind::not_viable, why));
    return {};
  }
  pending_->answered = true;
  const std::shared_ptr<VerbsDevice> device = host_.device;
  const auto depth = std::max<std::uint8_t>(std::min(device->initiator_depth(), message.depth), 1);
  auto pairs = std::make_shared<Pairs>(std::move(pending_->pairs));
  device->helper().post("connecting queue pairs", [this, message = std::move(message), pairs, depth,
                                                   post = host_.post, alive = std::weak_ptr(alive_)] {
    Status status;
    for (std::size_t i = 0; i < pairs->size() && status.ok(); ++i)
      status = (*pairs)[i]->connect(message.port, message.queues[i], depth);
    post([this, message, pairs, status, alive] {
      if (alive.lock()) return on_ready(message.request, pairs, status, message.queues);
      destroy(std::move(*pairs));
    });
  });
  return {};
}

void VerbsLink::on_ready(std::uint64_t request, const std::shared_ptr<Pairs>& pairs, const Status& status,
                         const std::vector<verbs_wire::Queue>& remotes) {
  const bool wanted = pending_ && pending_->request == request;
  if (!wanted || !status.ok()) {
    drop(request, remotes);
    destroy(std::move(*pairs));
    if (wanted) note_failure(status.error());
    return;
  }
  end_pending();
  for (std::size_t i = 0; i < pairs->size(); ++i) {
    remotes_[(*pairs)[i]->id()] = {request, remotes[i].qpn};
    host_.counters->connections.add();
    reads_->add_queue(std::move((*pairs)[i]));
  }
  const bool was_up = std::exchange(state_, State::up) == State::up;
  arm_idle();
  failure_.clear();
  completed_then_ = reads_->completed();
  request_keys();  // those that have not come yet: asked for twice does no harm, lost would be a read that
                   // waits
  try_waiting();
  if (!was_up) channel_.viability_changed();
  connect_missing();
}

Status VerbsLink::on_refused(const verbs_wire::Refused& message) {
  if (message.request == 0 || message.request >= next_request_) {
    return Error(ErrorKind::protocol, "the peer refused a connection that was not asked for");
  }
  if (pending_ && pending_->request == message.request)
    note_failure(Error(message.kind, "the peer refused queue pairs: " + message.text));
  return {};
}

void VerbsLink::give_up_connecting(std::uint64_t request) {
  if (!pending_ || pending_->request != request) return;
  pending_->timer = 0;
  if (host_.device) host_.device->helper().check();
  note_failure(Error(ErrorKind::deadline_exceeded, "queue pairs to the peer were not connected within " +
                                                       std::to_string(host_.options.connect_timeout.count()) +
                                                       " ms"));
}

void VerbsLink::end_pending() {
  if (!pending_) return;
  host_.loop.cancel(pending_->timer);
  destroy(std::move(pending_->pairs));
  pending_.reset();
}

void VerbsLink::note_failure(const Error& why) {
  end_pending();
  host_.loop.cancel(std::exchange(retry_timer_, 0));
  if (reads_ && reads_->completed() != completed_then_) retry_delay_ = host_.options.retry_first;
  arm_retry();
  if (!reads_ || reads_->queues() != 0) return;
  // Once for each bout of failures, however often it is tried.
  const std::string line = "verbs to node " + channel_.peer().brief() + ": " + why.message();
  const bool first = failure_.empty();
  host_.log->log(first ? LogLevel::warn : LogLevel::debug,
                 line + (first ? "; reads take another route until it works" : ""));
  state_ = State::failed;
  failure_ = why.message();
  fail_reads(Error(why).with_transport(kName));
  channel_.viability_changed();
}

void VerbsLink::arm_retry() {
  if (retry_timer_ != 0 || closed_) return;
  retry_at_ = std::chrono::steady_clock::now() + retry_delay_;
  retry_timer_ = call_in(retry_delay_, guarded([this] { retry(); }));
  retry_delay_ = std::min(2 * retry_delay_, host_.options.retry_last);
}

void VerbsLink::retry() {
  retry_timer_ = 0;
  for (const auto& [id, memory] : memories_) {
    if (memory.problem) channel_.send(verbs_wire::encode(verbs_wire::Keys{{id}}));
  }
  // With queues left this is a replacement's second try.
  if (state_ == State::failed) state_ = State::idle;
  connect_missing();
  channel_.viability_changed();
}

// --- Queues that end.

void VerbsLink::arm_idle() {
  if (host_.options.idle_timeout.count() == 0 || idle_timer_ != 0) return;
  completed_idle_ = reads_->completed();
  idle_timer_ = call_in(host_.options.idle_timeout, guarded([this] {
                          idle_timer_ = 0;
                          close_if_idle();
                        }));
}

void VerbsLink::close_if_idle() {
  if (closed_ || state_ != State::up) return;  // armed again by the next connection
  if (pending_ || reads_->any_running() || reads_->completed() != completed_idle_) return arm_idle();
  state_ = State::idle;  // the next read connects
  reads_->drain_all();
  channel_.viability_changed();
}

void VerbsLink::on_draining(const std::shared_ptr<VerbsReads>& reads, std::uint32_t queue) {
  call_in(host_.options.drain_timeout, guarded([this, reads, queue] {
            if (host_.device) host_.device->helper().check();
            if (reads->drain_overdue(queue)) on_draining(reads, queue);
          }));
}

void VerbsLink::on_drained(const std::shared_ptr<VerbsReads>& reads, std::uint32_t queue,
                           const std::optional<Error>& cause) {
  if (std::unique_ptr<QueuePair> pair = reads->take_queue(queue)) {
    Pairs pairs;
    pairs.push_back(std::move(pair));
    destroy(std::move(pairs));
  }
  if (reads != reads_) return;  // of a device that is gone; another's queues have the same numbers
  const auto found = remotes_.find(queue);
  if (found == remotes_.end()) return;
  channel_.send(verbs_wire::encode(verbs_wire::Drop{found->second.request, found->second.qpn}));
  remotes_.erase(found);
  if (closed_) return;
  if (!cause) return state_ == State::idle ? void() : connect_missing();
  // The connection is to blame, and the other queues have the same one.
  reads->drain_all();
  if (state_ != State::failed) note_failure(*cause);
}

void VerbsLink::destroy(Pairs pairs) {
  if (pairs.empty()) return;
  const std::shared_ptr<VerbsDevice> device = pairs.front()->device();
  device->helper().post("destroying queue pairs",
                        [pairs = std::make_shared<Pairs>(std::move(pairs))] { pairs->clear(); });
}

Status VerbsLink::on_renewed(const verbs_wire::Renewed& message) {
  peer_ = {.usable = true, .port = message.port};
  end_pending();  // the peer's end of it, if it was made, went with the old device
  forget_keys();
  if (reads_) reads_->drain_all();
  host_.loop.cancel(std::exchange(retry_timer_, 0));
  retry_delay_ = host_.options.retry_first;
  const bool was_used = std::exchange(state_, State::idle) != State::idle;
  if (was_used || (!memories_.empty() && !channel_.same_host())) connect_missing();
  channel_.viability_changed();
  return {};
}

// --- Keys.

void VerbsLink::forget_keys() {
  for (auto& [id, memory] : memories_) {
    memory.keys = nullptr;
    memory.problem.reset();
  }
}

void VerbsLink::request_keys() {
  verbs_wire::Keys message;
  for (const auto& [id, memory] : memories_) {
    if (!memory.keys && !memory.problem) message.memories.push_back(id);
  }
  if (!message.memories.empty()) channel_.send(verbs_wire::encode(message));
}

Status VerbsLink::on_key(verbs_wire::Key message) {
  const auto found = memories_.find(message.memory);
  if (found == memories_.end() && message.memory <= highest_memory_) return {};  // gone meanwhile
  if (found == memories_.end() || found->second.size != message.size) {
    return Error(ErrorKind::protocol, "the peer sent keys for memory " + std::to_string(message.memory) +
                                          " of " + std::to_string(message.size) +
                                          " bytes, which it has not announced");
  }
  auto keys = std::make_shared<RemoteMemory>();
  keys->address = message.address;
  keys->size = message.size;
  keys->piece = message.piece;
  keys->rkeys = std::move(message.rkeys);
  found->second.keys = std::move(keys);
  if (found->second.problem) {
    found->second.problem.reset();
    channel_.viability_changed();
  }
  try_waiting();
  return {};
}

Status VerbsLink::on_no_key(const verbs_wire::NoKey& message) {
  const auto found = memories_.find(message.memory);
  if (found == memories_.end() && message.memory <= highest_memory_) return {};  // gone meanwhile
  if (found == memories_.end()) {
    return Error(ErrorKind::protocol, "the peer refused keys for memory " + std::to_string(message.memory) +
                                          ", which it has not announced");
  }
  found->second.problem = Error(message.kind, message.text);
  // Reads that wait for it end; those of other memories go on.
  stop_waiting(message.memory, *problem_of(message.memory));
  arm_retry();
  channel_.viability_changed();
  return {};
}

}  // namespace stagewire
