// ClaimBook: the claims that this node has open at each lender, as a reader: the get behind each, or the last
// word (consumed, release, cancel) that is repeated until the lender has settled it. Thread-safe, so that a
// caller can open its claim and send it without a hop to the loop; owned by the node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <stagewire/base/node_id.h>

#include "node/get_operation.h"
#include "session/wire.h"

namespace stagewire {

class ClaimBook {
 public:
  struct Entry {
    std::uint64_t claim = 0;
    GetPtr get;                            ///< null once the get has its outcome
    std::optional<wire::Frame> last_word;  ///< to repeat until settled
  };

  /// Opens a claim at `lender` for `get` (nothing if the book is closed), sets its peer and claim number and
  /// the stage `claiming`, and gives the frame to send.
  std::optional<wire::Claim> open(const NodeId& lender, const GetPtr& get);
  /// The frame again, for a new session.
  wire::Claim frame_of(const GetOperation& get) const;

  GetPtr find(const NodeId& lender, std::uint64_t claim) const;
  bool known(const NodeId& lender, std::uint64_t claim) const;
  /// The get is over as far as the lender is concerned; `last_word` tells it so, now and after each
  /// reconnect.
  void close_with(const NodeId& lender, std::uint64_t claim, wire::Frame last_word);
  /// The lender has said its own last word.
  void settle(const NodeId& lender, std::uint64_t claim);
  /// All claims below are over: the lender may forget what they came to.
  std::uint64_t settled_below(const NodeId& lender) const;
  /// What is open at a lender, in order.
  std::vector<Entry> entries(const NodeId& lender) const;
  /// Forgets a lender; gives what was open.
  std::vector<Entry> forget(const NodeId& lender);
  std::vector<NodeId> lenders() const;
  /// Whether a last word to `lender` is still unsettled.
  bool has_last_words(const NodeId& lender) const;
  /// Drops everything, and opens nothing any more. Gets without an outcome end with `closed`.
  void close();
  std::size_t gets() const;

 private:
  std::uint64_t settled_below_locked(const NodeId& lender) const;

  mutable std::mutex mutex_;
  std::unordered_map<NodeId, std::map<std::uint64_t, Entry>> open_;
  std::uint64_t next_claim_ = 1;
  bool closed_ = false;
};

}  // namespace stagewire
