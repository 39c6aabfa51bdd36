// The running reads of one link and the queue pairs that carry them: which requests are posted, which are
// still to be, what comes of them, and the fence that makes an aborted read safe. The loop adds and stops
// reads, the poller brings completions, the helper stops and destroys queue pairs; one mutex, held for the
// posting of a chain at most, guards all state. Shared by the link, the poller and tasks of the helper.
//
// Safe means: a request leaves its read's account when a success completion proves it (and all before it on
// the queue), or when its queue has been drained: moved to ERR and its sentinel flushed, or destroyed.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/read_table.h"
#include "transport/verbs/device_poller.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/read_plan.h"
#include "transport/verbs/verbs_counters.h"

namespace stagewire {

class VerbsReads final : public CompletionSink, public std::enable_shared_from_this<VerbsReads> {
 public:
  /// What the link learns. Any thread, never under a lock.
  struct Events {
    /// A queue is being drained; drain_overdue() is due after the drain timeout.
    std::function<void(std::uint32_t queue)> draining;
    /// Nothing is posted to it any more; take_queue() gives it out. `cause`: the connection's failure, if it
    /// was that and not a fence.
    std::function<void(std::uint32_t queue, std::optional<Error> cause)> drained;
  };

  VerbsReads(std::shared_ptr<VerbsDevice> device, std::shared_ptr<ReadTable> table,
             std::shared_ptr<VerbsCounters> counters, std::string peer, Events events);

  // Loop:

  /// Enters a read of the table; run() or stop() follow.
  void begin(ReadId id);
  bool running(ReadId id) const;
  bool any_running() const;
  /// Ends a read with `status`: at once if nothing of it is posted, else when that is safe. True if it still
  /// runs, so that fence() is due after a while.
  bool stop(ReadId id, const Error& why);
  void stop_all(const Error& why);
  /// Drains every queue that still has requests of the read.
  void fence(ReadId id);
  void fence_all();
  /// A connected queue pair, registered with the poller here.
  void add_queue(std::unique_ptr<QueuePair> pair);
  /// The queue did not drain in time: it is destroyed, which ends what is posted as well. False if it has
  /// drained; else this is due again after a while.
  bool drain_overdue(std::uint32_t id);
  /// Gives out a drained queue's pair; null if draining had to destroy it.
  std::unique_ptr<QueuePair> take_queue(std::uint32_t id);
  /// Gives out every pair, whatever its state. Once no read is left.
  std::vector<std::unique_ptr<QueuePair>> take_all();
  /// Stops all queues, so that drained() follows for each.
  void drain_all();
  std::size_t queues() const;
  std::uint64_t completed() const;

  // Any thread:

  /// Starts a read that was begun. `hold` is dropped when it has ended. If it was stopped meanwhile, nothing
  /// is posted.
  void run(ReadId id, ReadPlan plan, std::shared_ptr<const void> hold);

  // Poller:
  void on_completions(std::span<const ibv_wc> completions) override;

 private:
  struct Operation {
    ReadId id = 0;
    bool planned = false;
    bool queued = false;            // stands in ready_
    std::optional<Error> stopping;  // nothing more is posted; the outcome once nothing is
    ReadPlan plan;
    std::size_t next = 0;             // in plan.reads
    std::vector<std::uint32_t> redo;  // of plan.reads: posted before, not proven
    std::uint64_t left = 0;           // bytes not proven yet
    std::uint64_t in_flight = 0;      // bytes
    std::uint32_t posted = 0;         // requests
    std::uint32_t repeats = 0;        // queues drained under it
    std::shared_ptr<const void> hold;
    bool has_more() const noexcept { return !redo.empty() || next < plan.reads.size(); }
  };
  struct Posted {
    Operation* operation = nullptr;
    std::uint32_t read = 0;
  };
  enum class QueueState : std::uint8_t { up, draining, drained };
  struct Queue {
    std::unique_ptr<QueuePair> pair;
    QueueState state = QueueState::up;
    std::deque<Posted> posted;   // in order; the first has the number `oldest`
    std::uint32_t oldest = 0;    // numbers wrap at kSentinel
    std::uint64_t bytes = 0;     // in flight
    bool in_call = false;        // a call about the pair has not returned: it must not be destroyed
    std::optional<Error> cause;  // why it is drained, where the connection is to blame
  };
  struct Ended {
    ReadId id = 0;
    Status status;
    std::shared_ptr<const void> hold;
  };
  // What has to happen once the mutex is free.
  struct After {
    std::vector<Ended> ended;
    std::vector<std::uint32_t> draining;
    std::vector<std::pair<std::uint32_t, std::optional<Error>>> drained;
  };

  void complete(Queue& queue, std::uint32_t number, After& after);
  void fail(Queue& queue, const ibv_wc& completion, After& after);
  void begin_drain(std::uint32_t id, Queue& queue, After& after);
  void resolve(std::uint32_t id, Queue& queue, After& after);
  void end_if_over(Operation& operation, After& after);
  void stop_locked(Operation& operation, const Error& why, After& after);
  static const PlannedRead& next_of(const Operation& operation);
  bool fits_window(const Operation& operation) const;
  void make_ready(Operation& operation);
  void pump(After& after);
  Queue* best_queue();
  bool post_chain(Operation& operation, Queue& queue, After& after);
  void flush(After& after);
  // Helper:
  void stop_queue(std::uint32_t id);
  void destroy_queue(std::uint32_t id);

  const std::shared_ptr<VerbsDevice> device_;
  const std::shared_ptr<ReadTable> table_;
  const std::shared_ptr<VerbsCounters> counters_;
  const std::string peer_;
  const Events events_;
  mutable std::mutex mutex_;
  std::unordered_map<ReadId, std::unique_ptr<Operation>> operations_;
  std::deque<Operation*> ready_;  // planned, not stopping, with requests to post and room in their windows
  std::unordered_map<std::uint32_t, Queue> queues_;
  std::uint64_t completed_ = 0;
};

}  // namespace stagewire
