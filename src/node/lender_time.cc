// The Lender's publishing, withdrawing, expiry and the end of readers. See lender.h.
#include <algorithm>
#include <utility>

#include "node/lender.h"

namespace stagewire {

void Lender::publish(PublicationFacts facts, Time now) {
  const Key key = facts.key;
  const std::uint64_t generation = facts.generation;
  highest_generation_ = std::max(highest_generation_, generation);
  auto publication = std::make_shared<Publication>(std::move(facts), now);
  const auto current = current_.find(key);
  if (current != current_.end() && current->second->facts().generation > generation) {
    // Two puts of one key raced, and the later one arrived first.
    static_cast<void>(publication->apply(PublicationEvent::withdraw(EndReason::replaced), now));
    ended_.add(generation, EndReason::replaced);
    return;
  }
  if (current != current_.end())
    withdraw_publication(PublicationPtr(current->second), EndReason::replaced, now);
  current_[key] = publication;
  live_.emplace_hint(live_.end(), generation, Live{.publication = publication, .expiry = expiries_.end()});
  after_transition(publication, now);
  reconsider(key, now);
}

void Lender::bury(std::uint64_t generation, EndReason reason) {
  highest_generation_ = std::max(highest_generation_, generation);
  ended_.add(generation, reason);
}

bool Lender::withdraw(const Key& key, std::uint64_t generation, EndReason reason, Time now) {
  const auto current = current_.find(key);
  if (current == current_.end()) return false;
  if (generation != 0 && current->second->facts().generation != generation) return false;
  withdraw_publication(PublicationPtr(current->second), reason, now);
  reconsider(key, now);
  return true;
}

std::uint64_t Lender::withdraw_matching(const std::function<bool(const Key&)>& matches, EndReason reason,
                                        Time now) {
  std::vector<Key> keys;
  for (const auto& [key, publication] : current_) {
    if (matches(key)) keys.push_back(key);
  }
  for (const Key& key : keys) withdraw(key, 0, reason, now);
  return keys.size();
}

std::uint64_t Lender::withdraw_prefix(const std::string& name_space, const std::string& prefix,
                                      EndReason reason, Time now) {
  return withdraw_matching(
      [&](const Key& key) { return key.name_space == name_space && key.key.starts_with(prefix); }, reason,
      now);
}

std::uint64_t Lender::withdraw_everywhere(const std::string& name_space, const std::string& wanted,
                                          EndReason reason, Time now) {
  return withdraw_matching([&](const Key& key) { return key.name_space == name_space && key.key == wanted; },
                           reason, now);
}

void Lender::withdraw_all(EndReason reason, Time now) {
  withdraw_matching([](const Key&) { return true; }, reason, now);
}

std::vector<std::shared_ptr<const void>> Lender::revoke_memory(std::uint32_t memory, EndReason reason,
                                                               Time now) {
  std::vector<PublicationPtr> affected;
  for (const auto& [generation, live] : live_) {
    const std::vector<RemoteRange>& ranges = live.publication->facts().ranges;
    const bool uses = std::any_of(ranges.begin(), ranges.end(),
                                  [memory](const RemoteRange& range) { return range.memory == memory; });
    if (uses) affected.push_back(live.publication);
  }
  std::vector<std::shared_ptr<const void>> bodies;
  for (const PublicationPtr& publication : affected) {
    bodies.push_back(publication->facts().body);
    withdraw_publication(publication, reason, now);
    std::vector<LeaseId> ended;
    for (const auto& [id, lease] : leases_) {
      if (lease.publication == publication) ended.push_back(id);
    }
    for (const LeaseId lease : ended) end_lease(lease, false, now);
    reconsider(publication->facts().key, now);
  }
  return bodies;
}

void Lender::withdraw_publication(const PublicationPtr& publication, EndReason reason, Time now) {
  if (!publication->apply(PublicationEvent::withdraw(reason), now)) return;
  after_transition(publication, now);
}

// Brings the indexes in line with the state that a publication has reached.
void Lender::after_transition(const PublicationPtr& publication, Time /*now*/) {
  const std::uint64_t generation = publication->facts().generation;
  const PublicationState state = publication->state();
  const auto live = live_.find(generation);
  if (live != live_.end()) {
    Expiries::iterator& expiry = live->second.expiry;
    if (expiry != expiries_.end()) expiries_.erase(expiry);
    // Most have the same time to live, so that the newest ends last: the hint saves the way down the tree.
    const auto expires = publication->expires_at();
    expiry = expires ? expiries_.emplace_hint(expiries_.end(), *expires, generation) : expiries_.end();
  }
  if (state == PublicationState::ready || state == PublicationState::leased) return;
  const auto current = current_.find(publication->facts().key);
  if (current != current_.end() && current->second == publication) current_.erase(current);
  if (state != PublicationState::freed || live == live_.end()) return;
  live_.erase(live);
  ended_.add(generation, publication->reason());
}

void Lender::on_reader_away(const NodeId& reader) {
  const auto state = readers_.find(reader);
  if (state == readers_.end()) return;
  std::vector<std::uint64_t> waiting;
  for (const auto& [claim, record] : state->second.claims) {
    if (record.state == ClaimRecord::State::waiting) waiting.push_back(claim);
  }
  for (const std::uint64_t claim : waiting) drop_waiting(reader, claim);
}

void Lender::on_reader_gone(const NodeId& reader, Time now) {
  on_reader_away(reader);
  const auto state = readers_.find(reader);
  if (state == readers_.end()) return;
  const std::vector<LeaseId> leases(state->second.leases.begin(), state->second.leases.end());
  for (const LeaseId lease : leases) end_lease(lease, false, now);
}

void Lender::forget_reader(const NodeId& reader, Time now) {
  on_reader_gone(reader, now);
  readers_.erase(reader);
}

void Lender::forsake(const std::set<NodeId>& readers) {
  for (auto& [id, lease] : leases_) {
    const PublicationFacts& facts = lease.publication->facts();
    if (readers.contains(lease.reader) && !facts.in_regions) facts.body->released = nullptr;
  }
}

std::optional<Time> Lender::next_time() const {
  std::optional<Time> next;
  if (!expiries_.empty()) next = expiries_.begin()->first;
  if (!claim_timeouts_.empty() && (!next || claim_timeouts_.begin()->first < *next))
    next = claim_timeouts_.begin()->first;
  return next;
}

std::optional<Time> Lender::on_time(Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const PublicationPtr publication = live_.at(expiries_.begin()->second).publication;
    withdraw_publication(publication, EndReason::expired, now);
    reconsider(publication->facts().key, now);
  }
  while (!claim_timeouts_.empty() && claim_timeouts_.begin()->first <= now) {
    const auto [reader, claim] = claim_timeouts_.begin()->second;
    if (!drop_waiting(reader, claim)) {
      claim_timeouts_.erase(claim_timeouts_.begin());
      continue;
    }
    refuse(reader, claim, ErrorKind::deadline_exceeded,
           "the key was not published before the claim's deadline");
  }
  return next_time();
}

}  // namespace stagewire
