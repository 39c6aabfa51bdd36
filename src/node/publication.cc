// The publication's transitions. See publication.h.
#include "node/publication.h"

#include <algorithm>
#include <utility>

namespace stagewire {

std::string_view to_string(EndReason reason) noexcept {
  switch (reason) {
    case EndReason::consumed:
      return "consumed";
    case EndReason::cancelled:
      return "cancelled";
    case EndReason::replaced:
      return "replaced";
    case EndReason::expired:
      return "expired";
    case EndReason::closed:
      return "closed";
  }
  return "unknown";
}

std::string_view to_string(PublicationState state) noexcept {
  switch (state) {
    case PublicationState::ready:
      return "ready";
    case PublicationState::leased:
      return "leased";
    case PublicationState::consumed:
      return "consumed";
    case PublicationState::withdrawn:
      return "withdrawn";
    case PublicationState::freed:
      return "freed";
  }
  return "unknown";
}

Publication::Publication(PublicationFacts facts, Time now)
    : facts_(std::move(facts)), created_(now), ttl_left_(facts_.ttl), ttl_since_(now) {}

std::uint32_t Publication::owed() const noexcept {
  return facts_.readers - static_cast<std::uint32_t>(consumed_.size()) -
         static_cast<std::uint32_t>(leases_.size());
}

bool Publication::leased_to(const std::string& reader) const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [&reader](const auto& lease) { return lease.second == reader; });
}

bool Publication::grantable_to(const std::string& reader) const {
  const bool open = state_ == PublicationState::ready || state_ == PublicationState::leased;
  return open && owed() > 0 && !consumed_by(reader) && !leased_to(reader);
}

bool Publication::apply(const PublicationEvent& event, Time now) {
  using Type = PublicationEvent::Type;
  const bool open = state_ == PublicationState::ready || state_ == PublicationState::leased;
  switch (event.type) {
    case Type::claimed:
      if (!grantable_to(event.reader) || leases_.count(event.lease) != 0) return false;
      if (state_ == PublicationState::ready)
        ttl_left_ -= now - ttl_since_;  // the budget rests while a lease is held
      leases_.emplace(event.lease, event.reader);
      break;
    case Type::consumed:
    case Type::lease_lost: {
      const auto lease = leases_.find(event.lease);
      if (lease == leases_.end()) return false;
      if (event.type == Type::consumed) consumed_.insert(std::move(lease->second));
      leases_.erase(lease);
      if (leases_.empty()) ttl_since_ = now;
      break;
    }
    case Type::withdrawn:
      if (!open) return false;
      state_ = PublicationState::withdrawn;
      reason_ = event.reason;
      break;
  }
  settle(now);
  return true;
}

// Where the counts lead once an event has been applied.
void Publication::settle(Time /*now*/) {
  const bool ending = state_ == PublicationState::withdrawn;
  if (!ending && consumed_.size() == facts_.readers) {
    reason_ = EndReason::consumed;
    state_ = PublicationState::consumed;
  }
  if (leases_.empty() && (ending || state_ == PublicationState::consumed)) {
    state_ = PublicationState::freed;
  } else if (!ending && state_ != PublicationState::consumed) {
    state_ = leases_.empty() ? PublicationState::ready : PublicationState::leased;
  }
  // Only now: the body may be held by a send that is still running, and its owner is told when that is over.
  if (state_ == PublicationState::freed && facts_.body) {
    facts_.body->reason = reason_;
    facts_.body.reset();
  }
}

std::optional<Time> Publication::expires_at() const noexcept {
  const Time lifetime_end = created_ + facts_.max_lifetime;
  if (state_ == PublicationState::ready) return std::min(lifetime_end, ttl_since_ + ttl_left_);
  if (state_ == PublicationState::leased) return lifetime_end;
  return std::nullopt;
}

}  // namespace stagewire
