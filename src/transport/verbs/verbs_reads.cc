// See verbs_reads.h.
#include "transport/verbs/verbs_reads.h"

#include <algorithm>
#include <array>
#include <utility>

#include "transport/verbs/verbs_error.h"

namespace stagewire {

namespace {

constexpr std::size_t kChain = 32;             // requests in one call of ibv_post_send at most
constexpr std::uint32_t kSentinel = 1U << 31;  // the number of a sentinel; requests stay below
constexpr std::uint32_t kMaxRepeats = 8;       // drained queues that one read survives

}  // namespace

VerbsReads::VerbsReads(std::shared_ptr<VerbsDevice> device, std::shared_ptr<ReadTable> table,
                       std::shared_ptr<VerbsCounters> counters, std::string peer, Events events)
    : device_(std::move(device)),
      table_(std::move(table)),
      counters_(std::move(counters)),
      peer_(std::move(peer)),
      events_(std::move(events)) {}

void VerbsReads::begin(ReadId id) {
  const std::lock_guard lock(mutex_);
  auto operation = std::make_unique<Operation>();
  operation->id = id;
  operations_.emplace(id, std::move(operation));
}

bool VerbsReads::running(ReadId id) const {
  const std::lock_guard lock(mutex_);
  return operations_.contains(id);
}

bool VerbsReads::any_running() const {
  const std::lock_guard lock(mutex_);
  return !operations_.empty();
}

void VerbsReads::run(ReadId id, ReadPlan plan, std::shared_ptr<const void> hold) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    const auto found = operations_.find(id);
    if (found == operations_.end()) return;  // stopped meanwhile; `hold` goes here
    Operation& operation = *found->second;
    operation.plan = std::move(plan);
    operation.planned = true;
    operation.hold = std::move(hold);
    for (const PlannedRead& read : operation.plan.reads) operation.left += read.length;
    make_ready(operation);
    pump(after);
    end_if_over(operation, after);
  }
  flush(after);
}

bool VerbsReads::stop(ReadId id, const Error& why) {
  After after;
  bool still = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = operations_.find(id);
    if (found != operations_.end()) {
      counters_->aborts.add();
      stop_locked(*found->second, why, after);
      still = operations_.contains(id);
    }
  }
  flush(after);
  return still;
}

void VerbsReads::stop_all(const Error& why) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Operation*> all;
    all.reserve(operations_.size());
    for (const auto& [id, operation] : operations_) all.push_back(operation.get());
    for (Operation* operation : all) stop_locked(*operation, why, after);
  }
  flush(after);
}

void VerbsReads::stop_locked(Operation& operation, const Error& why, After& after) {
  if (!operation.stopping) operation.stopping = why;
  if (std::exchange(operation.queued, false)) std::erase(ready_, &operation);
  end_if_over(operation, after);
}

void VerbsReads::fence(ReadId id) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, queue] : queues_) {
      const bool has = std::any_of(queue.posted.begin(), queue.posted.end(),
                                   [id](const Posted& each) { return each.operation->id == id; });
      if (has) begin_drain(number, queue, after);
    }
  }
  flush(after);
}

void VerbsReads::fence_all() {
  After after;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, queue] : queues_) {
      if (!queue.posted.empty()) begin_drain(number, queue, after);
    }
  }
  flush(after);
}

void VerbsReads::drain_all() {
  After after;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, queue] : queues_) begin_drain(number, queue, after);
  }
  flush(after);
}

void VerbsReads::add_queue(std::unique_ptr<QueuePair> pair) {
  After after;
  const std::uint32_t id = pair->id();
  device_->poller().add(id, shared_from_this());
  {
    const std::lock_guard lock(mutex_);
    queues_[id].pair = std::move(pair);
    pump(after);
  }
  flush(after);
}

std::unique_ptr<QueuePair> VerbsReads::take_queue(std::uint32_t id) {
  std::unique_ptr<QueuePair> pair;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    if (found == queues_.end() || found->second.state != QueueState::drained) return nullptr;
    pair = std::move(found->second.pair);
    queues_.erase(found);
  }
  device_->poller().remove(id);
  return pair;
}

std::vector<std::unique_ptr<QueuePair>> VerbsReads::take_all() {
  std::vector<std::unique_ptr<QueuePair>> pairs;
  std::vector<std::uint32_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, queue] : queues_) {
      ids.push_back(id);
      if (queue.pair) pairs.push_back(std::move(queue.pair));
    }
    queues_.clear();
  }
  for (const std::uint32_t id : ids) device_->poller().remove(id);
  return pairs;
}

std::size_t VerbsReads::queues() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      queues_.begin(), queues_.end(), [](const auto& each) { return each.second.state == QueueState::up; }));
}

std::uint64_t VerbsReads::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

// --- Posting.

const PlannedRead& VerbsReads::next_of(const Operation& operation) {
  return operation.plan.reads[operation.redo.empty() ? operation.next : operation.redo.back()];
}

bool VerbsReads::fits_window(const Operation& operation) const {
  // A single request may be larger than the window; it goes alone then.
  return operation.in_flight == 0 ||
         operation.in_flight + next_of(operation).length <= device_->options().window;
}

void VerbsReads::make_ready(Operation& operation) {
  if (operation.queued || operation.stopping || !operation.planned || !operation.has_more()) return;
  if (!fits_window(operation)) return;
  operation.queued = true;
  ready_.push_back(&operation);
}

VerbsReads::Queue* VerbsReads::best_queue() {
  Queue* best = nullptr;
  for (auto& [id, queue] : queues_) {
    if (queue.state != QueueState::up || queue.posted.size() >= queue.pair->depth()) continue;
    if (best == nullptr || queue.bytes < best->bytes) best = &queue;
  }
  return best;
}

void VerbsReads::pump(After& after) {
  // One chain for each read in turn, so that a large one does not keep small ones waiting.
  while (!ready_.empty()) {
    Queue* queue = best_queue();
    if (queue == nullptr) return;
    Operation* operation = ready_.front();
    ready_.pop_front();
    operation->queued = false;
    if (post_chain(*operation, *queue, after)) make_ready(*operation);
  }
}

bool VerbsReads::post_chain(Operation& operation, Queue& queue, After& after) {
  const VerbsOptions& options = device_->options();
  // Small enough that every queue pair gets several chains of one window.
  const std::uint64_t most_bytes = std::max<std::uint64_t>(options.window / (4 * queues_.size()), 1);
  std::array<ibv_send_wr, kChain> chain;
  const std::uint32_t id = queue.pair->id();
  const std::size_t room = std::min<std::size_t>(kChain, queue.pair->depth() - queue.posted.size());
  std::uint32_t number = (queue.oldest + static_cast<std::uint32_t>(queue.posted.size())) % kSentinel;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  while (count < room && bytes < most_bytes && operation.has_more() && fits_window(operation)) {
    const PlannedRead& read = next_of(operation);
    const auto index = static_cast<std::uint32_t>(&read - operation.plan.reads.data());
    if (operation.redo.empty()) {
      ++operation.next;
    } else {
      operation.redo.pop_back();
    }
    ibv_send_wr& request = chain[count];
    request = {};
    request.wr_id = std::uint64_t{id} << kQueueShift | number;
    request.next = &chain[count] + 1;
    request.sg_list = &operation.plan.pieces[read.first_sge];
    request.num_sge = static_cast<int>(read.sge_count);
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = read.remote;
    request.wr.rdma.rkey = read.rkey;
    queue.posted.push_back({&operation, index});
    number = (number + 1) % kSentinel;
    operation.in_flight += read.length;
    bytes += read.length;
    ++count;
  }
  queue.bytes += bytes;
  operation.posted += static_cast<std::uint32_t>(count);
  chain[count - 1].next = nullptr;
  // One completion proves the whole chain; a request that fails completes by itself.
  chain[count - 1].send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int failed = device_->api().post_send(queue.pair->get(), chain.data(), &bad);
  if (failed == 0) return true;
  // Whatever the driver took of the chain, and it may say so wrongly: draining tells for certain.
  queue.cause = call_error(failed, "ibv_post_send");
  if (!operation.stopping) operation.stopping = *queue.cause;
  begin_drain(id, queue, after);
  return false;
}

// --- Completions.

void VerbsReads::on_completions(std::span<const ibv_wc> completions) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    for (const ibv_wc& completion : completions) {
      const auto id = static_cast<std::uint32_t>(completion.wr_id >> kQueueShift);
      const auto number = static_cast<std::uint32_t>(completion.wr_id);
      const auto found = queues_.find(id);
      if (found == queues_.end() || found->second.state == QueueState::drained) continue;
      if (number == kSentinel) {
        resolve(id, found->second, after);
      } else if (completion.status == IBV_WC_SUCCESS) {
        complete(found->second, number, after);
      } else {
        fail(found->second, completion, after);
      }
    }
    pump(after);
  }
  flush(after);
}

void VerbsReads::complete(Queue& queue, std::uint32_t number, After& after) {
  // Reads of one queue pair complete in order: this one proves all before it.
  const std::uint32_t count = (number + kSentinel - queue.oldest) % kSentinel + 1;
  if (count > queue.posted.size()) return;  // none of ours
  for (std::uint32_t i = 0; i < count; ++i) {
    const Posted posted = queue.posted.front();
    queue.posted.pop_front();
    Operation& operation = *posted.operation;
    const std::uint64_t length = operation.plan.reads[posted.read].length;
    --operation.posted;
    operation.in_flight -= length;
    operation.left -= length;
    queue.bytes -= length;
    make_ready(operation);
    end_if_over(operation, after);
  }
  queue.oldest = (number + 1) % kSentinel;
}

void VerbsReads::fail(Queue& queue, const ibv_wc& completion, After& after) {
  counters_->failed(completion.status);
  const auto id = static_cast<std::uint32_t>(completion.wr_id >> kQueueShift);
  const auto number = static_cast<std::uint32_t>(completion.wr_id);
  const std::uint32_t place = (number + kSentinel - queue.oldest) % kSentinel;
  if (place >= queue.posted.size()) return;
  const Blame blame = blame_of(completion.status);
  Error error = completion_error(completion);
  error.with_peer(peer_);
  // Requests stay on the account until the queue has been drained; only the outcome is known already.
  if (blame == Blame::read) {
    stop_locked(*queue.posted[place].operation, error, after);
  } else if (blame == Blame::connection) {
    if (!queue.cause) queue.cause = error;
    for (const Posted& posted : queue.posted) {
      if (!posted.operation->stopping) stop_locked(*posted.operation, error, after);
    }
  }
  begin_drain(id, queue, after);
}

void VerbsReads::end_if_over(Operation& operation, After& after) {
  if (operation.posted != 0) return;
  const bool complete = operation.planned && operation.left == 0;
  if (!operation.stopping && !complete) return;
  Status status;
  if (!complete && operation.stopping) {
    status = *operation.stopping;
  } else {
    ++completed_;
    counters_->reads.add();
    for (const PlannedRead& read : operation.plan.reads) counters_->bytes.add(read.length);
  }
  after.ended.push_back({operation.id, std::move(status), std::move(operation.hold)});
  if (operation.queued) std::erase(ready_, &operation);
  operations_.erase(operation.id);
}

// --- The fence.

void VerbsReads::begin_drain(std::uint32_t id, Queue& queue, After& after) {
  if (queue.state != QueueState::up) return;
  queue.state = QueueState::draining;
  counters_->queue_resets.add();
  after.draining.push_back(id);
}

void VerbsReads::stop_queue(std::uint32_t id) {
  QueuePair* pair = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    if (found == queues_.end() || found->second.state != QueueState::draining || !found->second.pair) return;
    pair = found->second.pair.get();
    found->second.in_call = true;
  }
  const Status stopped = pair->stop();
  bool posted = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    // take_all() may have been quicker; the pair itself is destroyed by a later task of this thread.
    if (found == queues_.end()) return;
    found->second.in_call = false;
    if (found->second.state != QueueState::draining || !found->second.pair) return;
    if (stopped.ok()) {
      // The sentinel: flushed after everything that was posted before it. A slot is kept free for it.
      ibv_send_wr sentinel{};
      sentinel.wr_id = std::uint64_t{id} << kQueueShift | kSentinel;
      sentinel.opcode = IBV_WR_RDMA_READ;
      sentinel.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      posted = device_->api().post_send(pair->get(), &sentinel, &bad) == 0;
    }
  }
  if (!stopped.ok()) device_->log().warn("verbs queue pair of " + peer_ + ": " + stopped.error().to_string());
  if (!posted) destroy_queue(id);
}

bool VerbsReads::drain_overdue(std::uint32_t id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    if (found == queues_.end() || found->second.state != QueueState::draining) return false;
  }
  device_->log().warn("a verbs queue pair of " + peer_ + " has not drained in time and is destroyed");
  device_->helper().post("destroying a queue pair",
                         [self = shared_from_this(), id] { self->destroy_queue(id); });
  return true;
}

void VerbsReads::destroy_queue(std::uint32_t id) {
  std::unique_ptr<QueuePair> pair;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    if (found == queues_.end() || found->second.state != QueueState::draining || found->second.in_call)
      return;
    pair = std::move(found->second.pair);
  }
  if (pair == nullptr) return;  // another call is at it
  const Status destroyed = pair->destroy();
  if (!destroyed.ok())
    device_->log().error("verbs queue pair of " + peer_ + ": " + destroyed.error().to_string());
  After after;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(id);
    if (found != queues_.end() && found->second.state == QueueState::draining) {
      if (destroyed.ok()) {
        resolve(id, found->second, after);
      } else {
        // The adapter may still write: what is posted stays on its account, and so its destinations stay
        // held.
        found->second.pair = std::move(pair);
      }
    }
    pump(after);
  }
  flush(after);
}

void VerbsReads::resolve(std::uint32_t id, Queue& queue, After& after) {
  queue.state = QueueState::drained;
  std::vector<Operation*> touched;
  for (const Posted& posted : queue.posted) {
    Operation& operation = *posted.operation;
    --operation.posted;
    operation.in_flight -= operation.plan.reads[posted.read].length;
    operation.redo.push_back(posted.read);
    if (touched.empty() || touched.back() != &operation) touched.push_back(&operation);
  }
  queue.posted.clear();
  queue.bytes = 0;
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (Operation* operation : touched) {
    if (!operation->stopping) {
      counters_->requests_repeated.add(operation->redo.size());
      if (++operation->repeats > kMaxRepeats) {
        Error error(ErrorKind::peer_lost, "the queue pairs under the read were stopped " +
                                              std::to_string(kMaxRepeats) + " times in a row");
        operation->stopping =
            queue.cause ? *queue.cause : std::move(error.with_transport("verbs").with_peer(peer_));
      }
    }
    make_ready(*operation);
    end_if_over(*operation, after);
  }
  after.drained.emplace_back(id, queue.cause);
}

void VerbsReads::flush(After& after) {
  for (const std::uint32_t id : after.draining) {
    device_->helper().post("stopping a queue pair",
                           [self = shared_from_this(), id] { self->stop_queue(id); });
    events_.draining(id);
  }
  for (auto& [id, cause] : after.drained) events_.drained(id, std::move(cause));
  for (Ended& ended : after.ended) {
    ended.hold.reset();  // its registrations are on their way out before anybody can close the device
    table_->finish(ended.id, ended.status);
  }
}

}  // namespace stagewire
