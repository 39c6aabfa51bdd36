// Lender: the sending half of a node as pure state: what is published, who waits for it, who holds a lease,
// what each reader's claims have come to. Frames come in, frames go out through LenderOutput, time comes in
// as an argument; no clock, lock or socket of its own, so that every order of events can be tested. Loop
// thread only; owned by the node.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <stagewire/base/node_id.h>

#include "node/ended_generations.h"
#include "node/publication.h"
#include "session/wire.h"

namespace stagewire {

/// Where the Lender's decisions go.
class LenderOutput {
 public:
  virtual ~LenderOutput() = default;
  /// An answer to a reader. Lost if there is no session to it: it will repeat its claim.
  virtual void send(const NodeId& reader, wire::Frame frame) = 0;
  /// An answer that nobody waits for: it rides with another frame, or leaves by itself some milliseconds
  /// later.
  virtual void send_lazily(const NodeId& reader, wire::Frame frame) = 0;
  /// The lease exists from now on, before its grant is sent; the transports may pin its ranges.
  virtual void on_lease(LeaseId lease, const NodeId& reader, const Publication& publication) = 0;
  /// From now on nothing new is pinned under it.
  virtual void on_lease_end(LeaseId lease) = 0;
  virtual std::uint64_t lease_epoch_for(const NodeId& reader) = 0;
};

struct LenderLimits {
  std::size_t max_waiting_claims = 4096;   ///< per reader node
  std::uint64_t max_view_bytes = 1 << 29;  ///< per reader node, of the publish pool
};

/// One lease, for explain and metrics.
struct LeaseInfo {
  LeaseId lease = 0;
  NodeId reader;
  std::string reader_name;
  Key key;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  bool view = false;
  Time since{0};
};

class Lender {
 public:
  Lender(LenderOutput& output, LenderLimits limits);

  /// Publishes; replaces an older generation of the key. A generation older than the one there is ends as
  /// replaced at once.
  void publish(PublicationFacts facts, Time now);
  /// A generation whose memory was taken back before it could be published: who asks for it hears `reason`.
  void bury(std::uint64_t generation, EndReason reason);
  /// Withdraws what is current under `key`, if `generation` is 0 or its own. False if there was nothing.
  bool withdraw(const Key& key, std::uint64_t generation, EndReason reason, Time now);
  std::uint64_t withdraw_prefix(const std::string& name_space, const std::string& prefix, EndReason reason,
                                Time now);
  std::uint64_t withdraw_everywhere(const std::string& name_space, const std::string& wanted,
                                    EndReason reason, Time now);
  void withdraw_all(EndReason reason, Time now);
  /// Takes a memory back: withdraws what lies in it and ends the leases of it, whether their readers are
  /// through or not. Returns what keeps it from its owner, to be held until no transport reads it any more.
  std::vector<std::shared_ptr<const void>> revoke_memory(std::uint32_t memory, EndReason reason, Time now);

  void on_claim(const NodeId& reader, const wire::Claim& claim, Time now);
  void on_cancel(const NodeId& reader, const wire::CancelClaim& cancel, Time now);
  void on_consumed(const NodeId& reader, const wire::Consumed& consumed, Time now);
  void on_release(const NodeId& reader, const wire::Release& release, Time now);
  void on_settled_below(const NodeId& reader, std::uint64_t claim);

  /// The session is gone: claims that wait are dropped (the reader repeats them), leases stay.
  void on_reader_away(const NodeId& reader);
  /// The reader's leases have expired (the epoch was raised before): they end. What its claims came to is
  /// remembered, since it may be alive and come back.
  void on_reader_gone(const NodeId& reader, Time now);
  /// The reader's process has ended, or it has been away for so long that it will not come back: nothing of
  /// it stays.
  void forget_reader(const NodeId& reader, Time now);

  /// Ends what is due; returns when to call again.
  std::optional<Time> on_time(Time now);
  /// When on_time is next needed.
  std::optional<Time> next_time() const;

  /// The node has ended while these readers could still have its memory mapped: the owners of what they hold
  /// leases of are never told that it is free.
  void forsake(const std::set<NodeId>& readers);

  std::size_t publications() const noexcept { return live_.size(); }
  std::size_t leases() const noexcept { return leases_.size(); }
  std::size_t waiting() const noexcept { return waiting_count_; }
  bool has_leases(const NodeId& reader) const;
  std::vector<LeaseInfo> lease_list() const;

 private:
  using PublicationPtr = std::shared_ptr<Publication>;
  using Expiries = std::set<std::pair<Time, std::uint64_t>>;  // of publications, by generation
  struct Live {
    PublicationPtr publication;
    Expiries::iterator expiry;  // expiries_.end() when nothing ends it by itself
  };
  struct ClaimRecord {
    enum class State : std::uint8_t { waiting, granted, consumed, lost };
    State state = State::waiting;
    LeaseId lease = 0;
    Key key = {};  // of one that waits
  };
  struct ReaderState {
    std::map<std::uint64_t, ClaimRecord> claims;
    std::set<LeaseId> leases;
    std::size_t waiting = 0;
    std::uint64_t view_bytes = 0;
  };
  struct Waiting {
    NodeId reader;
    wire::Claim claim;
    std::string reader_name;
    Time until{0};
  };
  struct Lease {
    NodeId reader;
    std::string reader_name;
    std::uint64_t claim = 0;
    PublicationPtr publication;
    std::uint64_t view_bytes = 0;
    bool copy_only = false;
    Time since{0};
  };

  enum class Answer : std::uint8_t { granted, refused, wait };
  /// Grants or refuses the claim if that can be decided now.
  Answer decide(const NodeId& reader, const wire::Claim& claim, const std::string& reader_name, Time now);
  void grant(const NodeId& reader, const wire::Claim& claim, const std::string& reader_name,
             const PublicationPtr& publication, Time now);
  void send_grant(LeaseId id, const Lease& lease);
  void refuse(const NodeId& reader, std::uint64_t claim, ErrorKind kind, std::string message);
  void refuse_gone(const NodeId& reader, const wire::Claim& claim);
  void remember(const NodeId& reader, std::uint64_t claim, ClaimRecord record);
  bool drop_waiting(const NodeId& reader, std::uint64_t claim);
  void forget_timeout(const Waiting& waiting);
  /// Looks again at the claims that wait for `key`.
  void reconsider(const Key& key, Time now);
  void end_lease(LeaseId id, bool consumed, Time now);
  void after_transition(const PublicationPtr& publication, Time now);
  std::uint64_t withdraw_matching(const std::function<bool(const Key&)>& matches, EndReason reason, Time now);
  void withdraw_publication(const PublicationPtr& publication, EndReason reason, Time now);

  LenderOutput& output_;
  LenderLimits limits_;
  std::unordered_map<Key, PublicationPtr, KeyHash> current_;
  // By generation, withdrawn but leased ones too. Ordered, because what is published, read and withdrawn is
  // mostly the newest: its way down the tree is in the caches, where a hash table of consecutive numbers
  // would chain it to one that has been there for long.
  std::map<std::uint64_t, Live> live_;
  std::unordered_map<Key, std::list<Waiting>, KeyHash> waiting_;
  std::size_t waiting_count_ = 0;
  std::unordered_map<NodeId, ReaderState> readers_;
  std::unordered_map<LeaseId, Lease> leases_;
  LeaseId next_lease_ = 1;
  std::uint64_t highest_generation_ = 0;
  EndedGenerations ended_;
  Expiries expiries_;
  std::multimap<Time, std::pair<NodeId, std::uint64_t>> claim_timeouts_;  // of waiting claims
};

}  // namespace stagewire
