// The Lender's answers to claims and the bookkeeping of leases. See lender.h; withdrawal and time are in
// lender_time.cc.
#include "node/lender.h"

#include <algorithm>
#include <span>
#include <utility>

namespace stagewire {

namespace {

Key key_of(const wire::Claim& claim) {
  return Key{.name_space = claim.name_space,
             .from_stage = claim.from_stage,
             .to_stage = claim.to_stage,
             .key = claim.key};
}

ErrorKind kind_of(EndReason reason) {
  switch (reason) {
    case EndReason::consumed:
      return ErrorKind::consumed;
    case EndReason::cancelled:
      return ErrorKind::cancelled;
    case EndReason::replaced:
      return ErrorKind::replaced;
    case EndReason::expired:
      return ErrorKind::expired;
    case EndReason::closed:
      return ErrorKind::cancelled;
  }
  return ErrorKind::internal;
}

std::string sentence_of(EndReason reason, std::uint64_t generation) {
  const std::string subject = "generation " + std::to_string(generation);
  switch (reason) {
    case EndReason::consumed:
      return subject + " has been consumed by every reader that it was published for";
    case EndReason::cancelled:
      return subject + " was withdrawn by its owner";
    case EndReason::replaced:
      return subject + " was replaced by a newer one of the same key";
    case EndReason::expired:
      return subject + " outlived its time to live or its maximum lifetime";
    case EndReason::closed:
      return subject + " ended when its owner closed the node";
  }
  return subject + " has ended";
}

}  // namespace

Lender::Lender(LenderOutput& output, LenderLimits limits) : output_(output), limits_(limits) {}

void Lender::on_claim(const NodeId& reader, const wire::Claim& claim, Time now) {
  on_settled_below(reader, claim.settled_below);
  const std::string reader_name = claim.reader.empty() ? reader.hex() : claim.reader;
  ReaderState& state = readers_[reader];
  if (const auto known = state.claims.find(claim.claim); known != state.claims.end()) {
    // Repeated after a lost reply or a reconnect: the same answer, never a second payload.
    switch (known->second.state) {
      case ClaimRecord::State::waiting:
        return;
      case ClaimRecord::State::granted:
        return send_grant(known->second.lease, leases_.at(known->second.lease));
      case ClaimRecord::State::consumed:
        return refuse(reader, claim.claim, ErrorKind::consumed,
                      "this very claim was granted before, and its payload consumed");
      case ClaimRecord::State::lost:
        return refuse(reader, claim.claim, ErrorKind::lease_lost,
                      "the lease of this claim has ended without being consumed");
    }
  }
  if (decide(reader, claim, reader_name, now) != Answer::wait) return;
  if (claim.wait_ms == 0) {
    const bool there = current_.count(key_of(claim)) != 0;
    return refuse(
        reader, claim.claim, ErrorKind::not_found,
        there ? "every read of this key that is owed is lent to a reader now" : "this key is not published");
  }
  if (state.waiting >= limits_.max_waiting_claims) {
    return refuse(
        reader, claim.claim, ErrorKind::busy,
        "this reader already has " + std::to_string(state.waiting) + " claims waiting (max_waiting_claims)");
  }
  const Time until = now + std::chrono::milliseconds(claim.wait_ms);
  remember(reader, claim.claim,
           ClaimRecord{.state = ClaimRecord::State::waiting, .lease = 0, .key = key_of(claim)});
  waiting_[key_of(claim)].push_back(
      Waiting{.reader = reader, .claim = claim, .reader_name = reader_name, .until = until});
  ++state.waiting;
  ++waiting_count_;
  claim_timeouts_.emplace(until, std::pair(reader, claim.claim));
}

Lender::Answer Lender::decide(const NodeId& reader, const wire::Claim& claim, const std::string& reader_name,
                              Time now) {
  PublicationPtr publication;
  const Key key = key_of(claim);
  if (claim.generation != 0) {
    const auto found = live_.find(claim.generation);
    // A ticket can be quicker than the publish that it came from, which is a task of this loop.
    if (found == live_.end() && claim.generation > highest_generation_ && claim.wait_ms != 0)
      return Answer::wait;
    if (found == live_.end() || found->second.publication->facts().key != key) {
      refuse_gone(reader, claim);
      return Answer::refused;
    }
    publication = found->second.publication;
    const bool over = publication->state() == PublicationState::withdrawn ||
                      publication->state() == PublicationState::consumed;
    if (over || publication->consumed_by(reader_name)) {
      const EndReason reason = over ? publication->reason() : EndReason::consumed;
      refuse(reader, claim.claim, kind_of(reason),
             over ? sentence_of(reason, claim.generation)
                  : "reader '" + reader_name + "' has already consumed generation " +
                        std::to_string(claim.generation));
      return Answer::refused;
    }
  } else {
    const auto found = current_.find(key);
    if (found == current_.end()) return Answer::wait;
    publication = found->second;
  }
  if (!publication->grantable_to(reader_name)) return Answer::wait;
  grant(reader, claim, reader_name, publication, now);
  return Answer::granted;
}

void Lender::grant(const NodeId& reader, const wire::Claim& claim, const std::string& reader_name,
                   const PublicationPtr& publication, Time now) {
  const LeaseId id = next_lease_++;
  if (!publication->apply(PublicationEvent::claim(id, reader_name), now)) return;
  ReaderState& state = readers_[reader];
  const PublicationFacts& facts = publication->facts();
  Lease lease{.reader = reader,
              .reader_name = reader_name,
              .claim = claim.claim,
              .publication = publication,
              .view_bytes = 0,
              .copy_only = false,
              .since = now};
  if ((claim.flags & wire::Claim::kWantView) != 0 && !facts.is_inline && !facts.in_regions) {
    lease.copy_only = state.view_bytes + facts.size > limits_.max_view_bytes;
    if (!lease.copy_only) lease.view_bytes = facts.size;
  }
  state.view_bytes += lease.view_bytes;
  state.leases.insert(id);
  const auto entry = leases_.emplace(id, std::move(lease)).first;
  remember(reader, claim.claim, ClaimRecord{.state = ClaimRecord::State::granted, .lease = id, .key = {}});
  output_.on_lease(id, reader, *publication);
  after_transition(publication, now);
  send_grant(id, entry->second);
}

void Lender::send_grant(LeaseId id, const Lease& lease) {
  const PublicationFacts& facts = lease.publication->facts();
  wire::Grant grant;
  grant.claim = lease.claim;
  grant.lease = id;
  grant.generation = facts.generation;
  grant.lease_epoch = output_.lease_epoch_for(lease.reader);
  grant.header = facts.header;
  grant.body_size = facts.size;
  grant.kind = facts.kind;
  if (facts.is_inline) {
    grant.flags |= wire::Grant::kInline;
    const std::span<const std::byte> body = facts.body->inline_bytes.bytes();
    grant.inline_body.assign(reinterpret_cast<const char*>(body.data()), body.size());
  } else {
    grant.ranges = facts.ranges;
  }
  if (lease.copy_only) grant.flags |= wire::Grant::kCopyOnly;
  if (facts.in_regions) grant.flags |= wire::Grant::kRegion;
  output_.send(lease.reader, std::move(grant));
}

void Lender::refuse(const NodeId& reader, std::uint64_t claim, ErrorKind kind, std::string message) {
  output_.send(reader, wire::Refuse{.claim = claim, .kind = kind, .message = std::move(message)});
}

void Lender::refuse_gone(const NodeId& reader, const wire::Claim& claim) {
  if (const auto reason = ended_.find(claim.generation)) {
    return refuse(reader, claim.claim, kind_of(*reason), sentence_of(*reason, claim.generation));
  }
  if (claim.generation > highest_generation_ || live_.count(claim.generation) != 0) {
    return refuse(
        reader, claim.claim, ErrorKind::not_found,
        "generation " + std::to_string(claim.generation) + " was never published under this key here");
  }
  refuse(reader, claim.claim, ErrorKind::expired,
         "generation " + std::to_string(claim.generation) + " ended longer ago than this node remembers");
}

void Lender::on_cancel(const NodeId& reader, const wire::CancelClaim& cancel, Time now) {
  if (drop_waiting(reader, cancel.claim)) {
    remember(reader, cancel.claim, ClaimRecord{.state = ClaimRecord::State::lost, .lease = 0, .key = {}});
  } else if (const auto state = readers_.find(reader); state != readers_.end()) {
    // The grant crossed the cancel on the wire.
    const auto record = state->second.claims.find(cancel.claim);
    if (record != state->second.claims.end() && record->second.state == ClaimRecord::State::granted) {
      end_lease(record->second.lease, false, now);
    }
  }
  output_.send_lazily(reader, wire::Settled{.claim = cancel.claim});
}

void Lender::on_consumed(const NodeId& reader, const wire::Consumed& consumed, Time now) {
  const auto lease = leases_.find(consumed.lease);
  if (lease != leases_.end() && lease->second.reader == reader) end_lease(consumed.lease, true, now);
  // A lease that is not there any more: consumed before (this is a repetition), or lost, which the reader has
  // to live with.
  output_.send_lazily(reader, wire::Settled{.claim = consumed.claim});
}

void Lender::on_release(const NodeId& reader, const wire::Release& release, Time now) {
  const auto lease = leases_.find(release.lease);
  if (lease != leases_.end() && lease->second.reader == reader) end_lease(release.lease, false, now);
  output_.send_lazily(reader, wire::Settled{.claim = release.claim});
}

void Lender::on_settled_below(const NodeId& reader, std::uint64_t claim) {
  const auto state = readers_.find(reader);
  if (state == readers_.end()) return;
  auto& claims = state->second.claims;
  for (auto record = claims.begin(); record != claims.end() && record->first < claim;) {
    const bool over = record->second.state == ClaimRecord::State::consumed ||
                      record->second.state == ClaimRecord::State::lost;
    record = over ? claims.erase(record) : std::next(record);
  }
}

void Lender::remember(const NodeId& reader, std::uint64_t claim, ClaimRecord record) {
  readers_[reader].claims[claim] = std::move(record);
}

bool Lender::drop_waiting(const NodeId& reader, std::uint64_t claim) {
  const auto state = readers_.find(reader);
  if (state == readers_.end()) return false;
  const auto record = state->second.claims.find(claim);
  if (record == state->second.claims.end() || record->second.state != ClaimRecord::State::waiting)
    return false;
  if (const auto queue = waiting_.find(record->second.key); queue != waiting_.end()) {
    const auto entry = std::find_if(queue->second.begin(), queue->second.end(), [&](const Waiting& waiting) {
      return waiting.claim.claim == claim && waiting.reader == reader;
    });
    if (entry != queue->second.end()) {
      forget_timeout(*entry);
      queue->second.erase(entry);
    }
    if (queue->second.empty()) waiting_.erase(queue);
  }
  --state->second.waiting;
  --waiting_count_;
  state->second.claims.erase(record);
  return true;
}

void Lender::forget_timeout(const Waiting& waiting) {
  const auto [first, last] = claim_timeouts_.equal_range(waiting.until);
  const auto timeout = std::find_if(first, last, [&](const auto& timer) {
    return timer.second == std::pair(waiting.reader, waiting.claim.claim);
  });
  if (timeout != last) claim_timeouts_.erase(timeout);
}

void Lender::reconsider(const Key& key, Time now) {
  const auto queue = waiting_.find(key);
  if (queue == waiting_.end()) return;
  // First come, first served. Deciding may publish nothing and withdraw nothing, so the queue is stable
  // meanwhile.
  std::list<Waiting> waiting = std::move(queue->second);
  waiting_.erase(queue);
  std::list<Waiting> still;
  while (!waiting.empty()) {
    Waiting& first = waiting.front();
    if (decide(first.reader, first.claim, first.reader_name, now) == Answer::wait) {
      still.splice(still.end(), waiting, waiting.begin());
      continue;
    }
    ReaderState& state = readers_[first.reader];
    --state.waiting;
    --waiting_count_;
    const auto record = state.claims.find(first.claim.claim);
    if (record != state.claims.end() && record->second.state == ClaimRecord::State::waiting)
      state.claims.erase(record);
    forget_timeout(first);
    waiting.pop_front();
  }
  if (!still.empty()) waiting_[key] = std::move(still);
}

void Lender::end_lease(LeaseId id, bool consumed, Time now) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  Lease lease = std::move(found->second);
  leases_.erase(found);
  output_.on_lease_end(id);
  ReaderState& state = readers_[lease.reader];
  state.leases.erase(id);
  state.view_bytes -= lease.view_bytes;
  remember(lease.reader, lease.claim,
           ClaimRecord{.state = consumed ? ClaimRecord::State::consumed : ClaimRecord::State::lost,
                       .lease = id,
                       .key = {}});
  if (!lease.publication->apply(PublicationEvent::end_of_lease(id, consumed), now)) return;
  after_transition(lease.publication, now);
  reconsider(lease.publication->facts().key, now);
}

bool Lender::has_leases(const NodeId& reader) const {
  const auto state = readers_.find(reader);
  return state != readers_.end() && !state->second.leases.empty();
}

std::vector<LeaseInfo> Lender::lease_list() const {
  std::vector<LeaseInfo> list;
  list.reserve(leases_.size());
  for (const auto& [id, lease] : leases_) {
    const PublicationFacts& facts = lease.publication->facts();
    list.push_back({.lease = id,
                    .reader = lease.reader,
                    .reader_name = lease.reader_name,
                    .key = facts.key,
                    .generation = facts.generation,
                    .bytes = facts.size,
                    .view = lease.view_bytes != 0,
                    .since = lease.since});
  }
  return list;
}

}  // namespace stagewire
