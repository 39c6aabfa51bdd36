// Publication: one generation of a key from its put to its end, as the state machine of docs/architecture.md
// with one transition function. No clock, no lock, no I/O: times come in with the events. Loop thread only;
// owned by the Lender.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <stagewire/base/node_id.h>
#include <stagewire/memory/pool.h>
#include <stagewire/node/options.h>
#include <stagewire/node/ticket.h>

#include "memory/block_cache.h"
#include "transport/transport.h"

namespace stagewire {

/// The memory of one publication. Shared by the publication and by every local operation that still touches
/// it (pins of the tcp transport); the last one to let go gives it back and tells the owner. Destroyed on any
/// thread.
struct SourceBody {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::shared_ptr<const void>>
      regions;                     ///< what keeps each region that it lies in from its owner
  BlockCache::Block inline_bytes;  ///< the packed tensors of a small payload, which then needs no buffer
  EndReason reason = EndReason::closed;
  std::function<void(EndReason)> released;

  SourceBody() = default;
  ~SourceBody() {
    buffers.clear();
    regions.clear();
    if (released) released(reason);
  }
  SourceBody(const SourceBody&) = delete;
  SourceBody& operator=(const SourceBody&) = delete;
};

/// Hashes all four parts of a key. Not noexcept on purpose: libstdc++ keeps the hash in the nodes of a table
/// only then, and computes its neighbours' hashes again for each insertion and removal otherwise.
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const std::hash<std::string> hash;
    std::size_t h = hash(key.key);
    for (const std::string* part : {&key.name_space, &key.from_stage, &key.to_stage}) {
      // 31 is enough to tell the order of the parts: the strings' own hashes are good.
      h = h * 31 + hash(*part);
    }
    return h;
  }
};

using LeaseId = std::uint64_t;
using Time = std::chrono::nanoseconds;  ///< CLOCK_BOOTTIME

/// What a put hands over.
struct PublicationFacts {
  Key key;
  std::uint64_t generation = 0;
  std::string header;
  std::uint64_t size = 0;  ///< packed tensor bytes
  std::vector<RemoteRange> ranges;
  MemoryKind kind = MemoryKind::host();
  bool is_inline = false;
  bool in_regions = false;  ///< lies in memory of the caller's own, of which peers get no views
  std::shared_ptr<SourceBody> body;
  std::uint32_t readers = 1;
  Time ttl{0};
  Time max_lifetime{0};
};

enum class PublicationState : std::uint8_t { ready, leased, consumed, withdrawn, freed };
std::string_view to_string(PublicationState state) noexcept;

/// What can happen to a publication.
struct PublicationEvent {
  enum class Type : std::uint8_t {
    claimed,     ///< a lease was given to `reader`
    consumed,    ///< the lease ended: the reader has the bytes
    lease_lost,  ///< the lease ended: the read is still owed
    withdrawn,   ///< time to live, cancel, replacement or close
  };
  Type type = Type::withdrawn;
  LeaseId lease = 0;
  std::string reader;                       ///< claimed
  EndReason reason = EndReason::cancelled;  ///< withdrawn

  static PublicationEvent claim(LeaseId lease, std::string reader) {
    return {.type = Type::claimed, .lease = lease, .reader = std::move(reader), .reason = {}};
  }
  static PublicationEvent end_of_lease(LeaseId lease, bool consumed) {
    return {.type = consumed ? Type::consumed : Type::lease_lost, .lease = lease, .reader = {}, .reason = {}};
  }
  static PublicationEvent withdraw(EndReason reason) {
    return {.type = Type::withdrawn, .lease = 0, .reader = {}, .reason = reason};
  }
};

class Publication {
 public:
  Publication(PublicationFacts facts, Time now);

  const PublicationFacts& facts() const noexcept { return facts_; }
  PublicationState state() const noexcept { return state_; }
  /// Why it ended or is ending; meaningful in consumed, withdrawn and freed.
  EndReason reason() const noexcept { return reason_; }

  /// N − consumed − leased (DESIGN: owed).
  std::uint32_t owed() const noexcept;
  bool consumed_by(const std::string& reader) const { return consumed_.count(reader) != 0; }
  bool leased_to(const std::string& reader) const;
  /// Whether a claim by `reader` would be granted now.
  bool grantable_to(const std::string& reader) const;
  std::size_t leases() const noexcept { return leases_.size(); }

  /// The one transition function. False: the event is not possible in this state (a bug of the caller's),
  /// nothing changed.
  bool apply(const PublicationEvent& event, Time now);

  /// When it expires if nothing happens before; nothing in its last states.
  std::optional<Time> expires_at() const noexcept;

 private:
  void settle(Time now);

  PublicationFacts facts_;
  PublicationState state_ = PublicationState::ready;
  EndReason reason_ = EndReason::consumed;
  std::map<LeaseId, std::string> leases_;  // lease → reader
  std::unordered_set<std::string> consumed_;
  Time created_;
  Time ttl_left_;
  Time ttl_since_;  // since when the budget is running; meaningful in ready
};

}  // namespace stagewire
