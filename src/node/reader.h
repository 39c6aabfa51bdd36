// Reader: the receiving half of a node. Drives each get through its stages: connect, claim, choose a route,
// read, say consumed; or abort, make the destination safe, let it go, end the lease, in that order (DESIGN:
// the life of a payload, receiver). Loop thread only; owned by the node.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include <stagewire/base/config.h>
#include <stagewire/base/metrics.h>
#include <stagewire/memory/pool.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "node/claim_book.h"
#include "node/get_operation.h"
#include "node/peers.h"
#include "session/sessions.h"

namespace stagewire {

/// How the Reader reaches lenders: remote ones over their session, this node by a task of its own loop.
class ReaderOutput {
 public:
  virtual ~ReaderOutput() = default;
  virtual void send_to_lender(const NodeId& lender, wire::Frame frame) = 0;
  /// May wait up to 1 ms for another frame to ride with.
  virtual void send_to_lender_lazily(const NodeId& lender, wire::Frame frame) = 0;
  virtual bool is_own_address(const std::string& address) const = 0;
  virtual void connect(const std::string& address, Sessions::Connected connected) = 0;
};

class Reader {
 public:
  Reader(EventLoop& loop, const NodeConfig& config, Peers& peers, ClaimBook& book, std::shared_ptr<Pool> pool,
         std::shared_ptr<Mailbox> mailbox, ReaderOutput& output, Metrics& metrics,
         std::shared_ptr<Logger> log);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Begins a get whose claim the caller has not opened.
  void start(const GetPtr& get);
  /// Sees to the deadline of a get that nobody waits on.
  void arm_deadline(const GetPtr& get);
  /// The caller opened and sent the claim, and the session turned out to be gone.
  void on_claim_unsent(const GetPtr& get);
  /// A get that does not wait for its payload has waited long enough for an answer: fails it, unless it was
  /// granted.
  void give_up_unanswered(const GetPtr& get);
  /// How long a get that does not wait for its payload waits for the sender's "no": a sender that is stopped
  /// gives none.
  static constexpr std::chrono::seconds kAnswerTime{1};
  /// Its deadline has passed, as its caller or its timer noticed.
  void expire(const GetPtr& get) { fail(get, deadline_error(get)); }
  /// Ends a get with `error`, unless it has its outcome.
  void fail(const GetPtr& get, Error error);

  Status on_grant(const NodeId& lender, wire::Grant grant);
  void on_refuse(const NodeId& lender, const wire::Refuse& refuse);
  void on_settled(const NodeId& lender, const wire::Settled& settled);
  /// The lender took a memory back: gets that were granted bytes of it fail with lease_lost.
  void on_memory_gone(const NodeId& lender, std::uint32_t memory);

  void on_peer_up(const NodeId& peer);
  void on_peer_away(const NodeId& peer);
  void on_peer_died(const NodeId& peer);

  /// The last reference to a view's memory is gone.
  void on_view_released(const NodeId& lender, std::uint64_t claim, std::uint64_t lease);

  /// Fails everything with `error`; `settled` runs when no read can touch a destination any more.
  void close(const Error& error, std::function<void()> settled);

  std::size_t quarantined() const noexcept { return quarantine_.size(); }
  std::uint64_t views() const noexcept { return views_->load(std::memory_order_relaxed); }
  /// What is between its start and its outcome.
  std::size_t running() const noexcept { return running_.size(); }

 private:
  // Connecting (reader_connect.cc).
  void connect_next(const GetPtr& get);
  void on_connected(const GetPtr& get, std::uint64_t claim_before, const std::string& address,
                    Result<std::shared_ptr<Session>> connected);
  void on_connect_failed(const GetPtr& get, Error error);
  void reconnect(const GetPtr& get);
  /// Over a session that has come up since the grant: the read begins anew with its claim.
  void claim_again(const GetPtr& get);
  void claim_at(const NodeId& lender, const GetPtr& get);
  void see_to_last_words(const NodeId& lender);
  void try_last_words(const NodeId& lender, std::size_t address, std::chrono::nanoseconds delay);

  // Reading.
  void on_granted(const GetPtr& get);
  void deliver_inline(const GetPtr& get);
  bool try_view(const GetPtr& get, Peer& peer, const Route& route);
  Status plan_into(const GetPtr& get);
  RoutePair route_pair(const GetOperation& get) const;
  /// The best that this get has not failed over.
  Route route_of(Peer& peer, const GetOperation& get);
  void allocate(const GetPtr& get);
  void on_allocated(const GetPtr& get, Result<Buffer> buffer);
  void start_read(const GetPtr& get);
  void on_read_done(const GetPtr& get, ReadId read, Status status);
  /// Reads again over another transport under the same lease, if `error` was the path's and there is one.
  bool fall_back(const GetPtr& get, Link* link, const Error& error);
  bool lease_holds(const GetPtr& get);
  void deliver(const GetPtr& get, std::byte* body, const std::shared_ptr<const void>& hold, bool read_only);
  void succeed(const GetPtr& get, Payload payload, bool view);
  void abort_read(const GetPtr& get, Error error);
  void on_abort_settled(const GetPtr& get);
  /// Tells the lender how the claim ended from this side.
  void last_word(const GetPtr& get, wire::Frame frame);
  void finish(const GetPtr& get, Result<Got> outcome);
  void count(const GetOperation& get, const Result<Got>& outcome);
  Error describe(const GetPtr& get, Error error) const;
  Error deadline_error(const GetPtr& get) const;
  void forget_if_settled();

  EventLoop& loop_;
  const NodeConfig& config_;
  Peers& peers_;
  ClaimBook& book_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Mailbox> mailbox_;
  ReaderOutput& output_;
  Metrics& metrics_;
  std::shared_ptr<Logger> log_;
  std::set<GetPtr> running_;
  std::set<GetPtr> quarantine_;    // have their outcome, but their destination is not proven safe yet
  std::set<NodeId> reconnecting_;  // lenders that are dialled for the sake of last words
  std::shared_ptr<std::atomic<std::uint64_t>> views_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::function<void()> all_settled_;
  std::optional<Error> closing_;  // what gets that come after close() end with

  // What is counted for each transport, looked up once.
  struct GetMetrics {
    Counter* gets = nullptr;
    Counter* bytes = nullptr;
    Histogram* seconds = nullptr;
  };
  std::map<std::string, GetMetrics, std::less<>> get_metrics_;
};

}  // namespace stagewire
