// One peer over RDMA. As the reader: connects queue pairs, learns the keys of the peer's memories and reads
// (VerbsReads has the running reads). As the lender: answers with queue pairs of its own and with keys. Loop
// thread; owned by the node. Connecting is in verbs_connect.cc, the lender's side in verbs_lender.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/read_table.h"
#include "transport/transport.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs_reads.h"
#include "transport/verbs/verbs_transport.h"
#include "transport/verbs/verbs_wire.h"

namespace stagewire {

namespace verbs_link {
/// What an exported memory is announced with: the keys follow by message, once it is registered.
std::string make_token();

/// A connect that is on its way. (Not inside of VerbsLink: an optional of it needs it complete.)
struct Pending {
  std::uint64_t request = 0;
  std::vector<std::unique_ptr<QueuePair>> pairs;  ///< once made, until the answer comes
  bool answered = false;
  EventLoop::TimerId timer = 0;
};
}  // namespace verbs_link

class VerbsLink final : public Link {
 public:
  /// `host` outlives the link.
  VerbsLink(VerbsHost& host, LinkChannel& channel, const verbs_wire::Hello& peer);
  ~VerbsLink() override;
  VerbsLink(const VerbsLink&) = delete;
  VerbsLink& operator=(const VerbsLink&) = delete;

  Viability viability(MemoryKind source, MemoryKind destination) const override;
  Status attach(ImportedMemory memory) override;
  void detach(std::uint32_t memory) override;
  Status on_message(std::string_view message) override;
  Result<View> view(std::span<const RemoteRange> from) override;
  ReadId read(ReadRequest request, ReadDone done) override;
  void abort(ReadId id, std::function<void()> settled) override;
  bool is_of_path(const Error& error) const override;
  void close(std::function<void()> closed) override;

  // From the transport:
  void on_device();
  void on_device_lost(const Error& why);
  /// The host's problem came or went.
  void on_problem();

 private:
  using Pairs = std::vector<std::unique_ptr<QueuePair>>;
  enum class State : std::uint8_t {
    idle,        ///< nothing attached yet, or no device
    connecting,  ///< reads wait
    up,
    failed,  ///< tried again when the timer fires
  };
  struct Memory {
    std::uint64_t size = 0;  ///< bytes, as announced
    std::shared_ptr<const RemoteMemory> keys;
    std::optional<Error> problem;
  };
  // Queue pairs that the peer reads through.
  struct Served {
    std::size_t count = 0;
    Pairs pairs;
  };
  /// Where the other end of one of our queues is.
  struct Remote {
    std::uint64_t request = 0;
    std::uint32_t qpn = 0;
  };

  /// `task` runs on the loop while this link lives.
  template <typename F>
  EventLoop::Task guarded(F task) {
    return [alive = std::weak_ptr(alive_), task = std::move(task)]() mutable {
      if (alive.lock()) task();
    };
  }
  void post(EventLoop::Task task) const { host_.post(std::move(task)); }
  EventLoop::TimerId call_in(std::chrono::milliseconds time, EventLoop::Task task);

  // Reader (verbs_link.cc).
  void make_reads();
  void try_waiting();
  std::optional<Error> obstacle() const;
  std::optional<Error> problem_of(std::uint32_t memory) const;
  void stop_waiting(std::uint32_t memory, const Error& why);
  void run(ReadId id, ReadRequest request);
  void fail_reads(const Error& why);

  // Connections (verbs_connect.cc).
  /// Why queue pairs of this node's port cannot be joined to those of the peer's; empty: they can.
  std::string mismatch() const;
  std::string mismatch_with(const verbs_wire::Port& peers) const;
  void connect_missing();
  void on_created(std::uint64_t request, Result<Pairs> made);
  /// Tells the peer that the queue pairs that it answered with are not wanted.
  void drop(std::uint64_t request, const std::vector<verbs_wire::Queue>& remotes);
  Status on_connected(verbs_wire::Connected message);
  Status on_refused(const verbs_wire::Refused& message);
  void on_ready(std::uint64_t request, const std::shared_ptr<Pairs>& pairs, const Status& status,
                const std::vector<verbs_wire::Queue>& remotes);
  void give_up_connecting(std::uint64_t request);
  void end_pending();
  void note_failure(const Error& why);
  void arm_retry();
  void retry();
  void forget_keys();
  void request_keys();
  void arm_idle();
  void close_if_idle();
  void on_draining(const std::shared_ptr<VerbsReads>& reads, std::uint32_t queue);
  void on_drained(const std::shared_ptr<VerbsReads>& reads, std::uint32_t queue,
                  const std::optional<Error>& cause);
  /// Any thread.
  static void destroy(Pairs pairs);
  Status on_key(verbs_wire::Key message);
  Status on_no_key(const verbs_wire::NoKey& message);
  Status on_renewed(const verbs_wire::Renewed& message);

  // Lender (verbs_lender.cc).
  Status on_connect(const verbs_wire::Connect& message);
  Status on_drop(const verbs_wire::Drop& message);
  Status on_keys(const verbs_wire::Keys& message);
  void refuse(std::uint64_t request, const Error& why);

  VerbsHost& host_;
  LinkChannel& channel_;
  verbs_wire::Hello peer_;
  const std::shared_ptr<ReadTable> table_ = std::make_shared<ReadTable>();
  std::shared_ptr<VerbsReads> reads_;  // of the present device; null without one
  std::unordered_map<std::uint32_t, Memory> memories_;
  std::uint32_t highest_memory_ = 0;  // that was ever announced: what comes about a lower one may be late
  std::vector<std::pair<ReadId, ReadRequest>> waiting_;  // for the connection or for keys

  State state_ = State::idle;
  std::optional<verbs_link::Pending> pending_;
  std::uint64_t next_request_ = 1;
  std::unordered_map<std::uint32_t, Remote> remotes_;  // by queue
  std::string failure_;                                // of state failed
  std::chrono::milliseconds retry_delay_;
  std::chrono::steady_clock::time_point retry_at_;
  EventLoop::TimerId retry_timer_ = 0;
  std::uint64_t completed_then_ = 0;  // reads that had completed when the last connection was made
  EventLoop::TimerId idle_timer_ = 0;
  std::uint64_t completed_idle_ = 0;  // when it was set

  std::map<std::uint64_t, Served> served_;  // by the peer's request
  std::set<std::uint32_t> keys_owed_;       // memories whose key the peer waits for
  bool closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stagewire
