// See claim_book.h.
#include "node/claim_book.h"

#include <algorithm>
#include <utility>

namespace stagewire {

namespace {
// wait_ms is 32 bits on the wire; longer waits are cut to 49 days.
constexpr std::int64_t kLongestWaitMs = 0xffffffffLL;
}  // namespace

std::optional<wire::Claim> ClaimBook::open(const NodeId& lender, const GetPtr& get) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return std::nullopt;
    get->peer = lender;
    get->claim = next_claim_++;
    get->stage = GetStage::claiming;
    open_[lender].emplace(get->claim, Entry{.claim = get->claim, .get = get, .last_word = std::nullopt});
  }
  return frame_of(*get);
}

wire::Claim ClaimBook::frame_of(const GetOperation& get) const {
  wire::Claim claim;
  claim.claim = get.claim;
  claim.reader = get.options.reader;
  claim.name_space = get.source.key.name_space;
  claim.from_stage = get.source.key.from_stage;
  claim.to_stage = get.source.key.to_stage;
  claim.key = get.source.key.key;
  claim.generation = get.source.generation;
  if (get.options.wait) {
    // Rounded up, so that the reader's own deadline is the one that ends a wait.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(get.options.deadline.left());
    claim.wait_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(left.count() + 1, 1, kLongestWaitMs));
  }
  if (get.options.placement == Placement::view) claim.flags |= wire::Claim::kWantView;
  claim.settled_below = settled_below(get.peer);
  return claim;
}

GetPtr ClaimBook::find(const NodeId& lender, std::uint64_t claim) const {
  const std::lock_guard lock(mutex_);
  const auto book = open_.find(lender);
  if (book == open_.end()) return nullptr;
  const auto entry = book->second.find(claim);
  return entry == book->second.end() ? nullptr : entry->second.get;
}

bool ClaimBook::known(const NodeId& lender, std::uint64_t claim) const {
  const std::lock_guard lock(mutex_);
  const auto book = open_.find(lender);
  return book != open_.end() && book->second.count(claim) != 0;
}

void ClaimBook::close_with(const NodeId& lender, std::uint64_t claim, wire::Frame last_word) {
  GetPtr dropped;  // outlives the lock
  const std::lock_guard lock(mutex_);
  Entry& entry = open_[lender][claim];
  entry.claim = claim;
  dropped = std::move(entry.get);
  entry.get = nullptr;
  entry.last_word = std::move(last_word);
}

void ClaimBook::settle(const NodeId& lender, std::uint64_t claim) {
  GetPtr dropped;  // outlives the lock
  const std::lock_guard lock(mutex_);
  const auto book = open_.find(lender);
  if (book == open_.end()) return;
  const auto entry = book->second.find(claim);
  if (entry == book->second.end()) return;
  dropped = std::move(entry->second.get);
  book->second.erase(entry);
}

std::uint64_t ClaimBook::settled_below_locked(const NodeId& lender) const {
  const auto book = open_.find(lender);
  return book == open_.end() || book->second.empty() ? next_claim_ : book->second.begin()->first;
}

std::uint64_t ClaimBook::settled_below(const NodeId& lender) const {
  const std::lock_guard lock(mutex_);
  return settled_below_locked(lender);
}

std::vector<ClaimBook::Entry> ClaimBook::entries(const NodeId& lender) const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> result;
  if (const auto book = open_.find(lender); book != open_.end()) {
    result.reserve(book->second.size());
    for (const auto& [claim, entry] : book->second) result.push_back(entry);
  }
  return result;
}

std::vector<ClaimBook::Entry> ClaimBook::forget(const NodeId& lender) {
  std::vector<Entry> result = entries(lender);
  const std::lock_guard lock(mutex_);
  open_.erase(lender);
  return result;
}

std::vector<NodeId> ClaimBook::lenders() const {
  const std::lock_guard lock(mutex_);
  std::vector<NodeId> result;
  result.reserve(open_.size());
  for (const auto& [lender, book] : open_) result.push_back(lender);
  return result;
}

bool ClaimBook::has_last_words(const NodeId& lender) const {
  const std::lock_guard lock(mutex_);
  const auto book = open_.find(lender);
  return book != open_.end() && std::any_of(book->second.begin(), book->second.end(), [](const auto& item) {
           return item.second.last_word.has_value();
         });
}

void ClaimBook::close() {
  std::unordered_map<NodeId, std::map<std::uint64_t, Entry>>
      dropped;  // outlives the lock: promises end as it goes
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(open_);
}

std::size_t ClaimBook::gets() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [lender, book] : open_) {
    count += static_cast<std::size_t>(
        std::count_if(book.begin(), book.end(), [](const auto& item) { return item.second.get != nullptr; }));
  }
  return count;
}

}  // namespace stagewire
