// What a caller can say about one put or one get. Plain structs with the defaults of the configuration where
// a field is empty.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stagewire/base/deadline.h>
#include <stagewire/base/error.h>
#include <stagewire/memory/memory_kind.h>
#include <stagewire/node/ticket.h>
#include <stagewire/payload/payload.h>

namespace stagewire {

/// Why a publication has ended.
enum class EndReason : std::uint8_t { consumed, cancelled, replaced, expired, closed };
std::string_view to_string(EndReason reason) noexcept;

struct PutOptions {
  /// How many readers are owed the payload; each consumes it once. At least 1.
  std::uint32_t readers = 1;
  /// Time to live while no lease is held; one budget that never restarts. Empty: the node's `ttl`.
  std::optional<std::chrono::nanoseconds> ttl;
  /// Withdraws even while leased. Empty: the node's `max_lifetime`.
  std::optional<std::chrono::nanoseconds> max_lifetime;
  /// How long to wait for pool memory. Empty: the node's `put_wait`.
  std::optional<Deadline> deadline;
  /// Whether a signal handler that runs on the waiting thread ends the wait for memory with `interrupted`.
  bool interruptible = false;
  /// Called once, on a thread of the node, when the payload has ended and nothing of stagewire touches its
  /// memory any more: the owner of memory published in place may reuse it. Must not block. Never called for
  /// what a reader on this host still has mapped (a view, a copy under way) when the node is closed: nobody
  /// is left to hear when it lets go, so the memory must stay as it is.
  std::function<void(EndReason)> released;
};

/// Where a get's tensors should be.
enum class Placement : std::uint8_t {
  copy,  ///< in memory of the receive pool, which the caller owns until it drops the result; writable
  view,  ///< in the sender's memory, read-only, if the route allows it; else as copy, and Got::is_view() says
         ///< so
  into,  ///< in memory the caller gave (GetOptions::into)
};

/// A piece of the caller's memory for Placement::into.
struct DestinationRange {
  std::byte* data = nullptr;
  std::uint64_t size = 0;  ///< bytes
  MemoryKind kind = MemoryKind::host();
};

struct GetOptions {
  /// By when the get has succeeded or failed; mandatory.
  Deadline deadline;
  Placement placement = Placement::copy;
  /// For Placement::into. One range: the tensors are laid out in it as in a receive buffer, each at a
  /// multiple of 256 bytes, and it may be larger. Several: the tensors' packed bytes, in order and without
  /// gaps, are cut over the ranges in order (one per tensor, or the pages of a KV cache), and the sizes must
  /// add up exactly.
  std::vector<DestinationRange> into;
  /// Keeps the destinations alive until no read can touch them any more, which may be after the get has
  /// failed.
  std::shared_ptr<const void> into_hold;
  /// Readers of one payload are told apart by name; empty: the node.
  std::string reader;
  /// Whether a signal handler that runs on the waiting thread ends the wait with `interrupted` (blocking gets
  /// alone); the get is given up then.
  bool interruptible = false;
  /// False: fail with not_found at once if the key is not published now.
  bool wait = true;

  explicit GetOptions(Deadline by) : deadline(by) {}
};

/// Where a key can be claimed. Either from a ticket, or an address and a key alone.
struct Source {
  std::vector<std::string> addresses;  ///< tried in order until one answers
  Key key;
  NodeId node;                   ///< nil: whoever answers at the address
  std::uint64_t generation = 0;  ///< 0: whichever is or comes next

  static Source of(const Ticket& ticket) {
    return Source{.addresses = ticket.addresses,
                  .key = ticket.key,
                  .node = ticket.node,
                  .generation = ticket.generation};
  }
  static Source at(std::string address, Key key) {
    return Source{.addresses = {std::move(address)}, .key = std::move(key), .node = {}, .generation = 0};
  }
};

}  // namespace stagewire
