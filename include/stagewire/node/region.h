// Region: memory of the caller's own (a paged KV cache, a weight tensor) that payloads can be published from
// in place. It is lent to peers only over transports that its owner can fence (verbs, tcp; never shared
// memory), so that the owner gets it back whatever the peers do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>
#include <stagewire/memory/memory_kind.h>

namespace stagewire {

struct RegionOptions {
  /// For people: stands in errors, logs and `explain`.
  std::string name = "region";
  MemoryKind kind = MemoryKind::host();
  /// Kept until nothing of stagewire touches the memory any more, which may be after the Region has gone.
  std::shared_ptr<const void> hold;
};

/// Made by Node::register_region. May outlive its node. Thread-safe.
class Region {
 public:
  /// Made and used by the node alone.
  struct State;
  explicit Region(std::unique_ptr<State> state);
  /// Takes the memory back as close() does, waiting for the node's abort grace at most; what is not proven
  /// over by then is logged, and only RegionOptions::hold keeps the memory until it is.
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const std::byte* data() const noexcept;
  std::uint64_t size() const noexcept;  ///< bytes
  const std::string& name() const noexcept;

  /// Takes the memory back by force: withdraws every payload that lies in it, ends the leases of it, and
  /// returns when no peer can read it any more; the owner may then write to it or free it. Gets that were
  /// reading end with lease_lost. A payload published in place ends by itself when its readers are through;
  /// closing the region first is for taking it away from them. Errors: deadline_exceeded (somebody may still
  /// be reading: the memory must not be touched, and close() may be called again to wait longer), forked. Not
  /// from within a callback of stagewire: it waits for the node's own threads.
  Status close(Deadline deadline);
  /// Whether close() was begun, the node has ended, or this is a forked child: nothing more can be published
  /// from it.
  bool closed() const noexcept;

 private:
  friend class NodeCore;
  std::unique_ptr<State> state_;
};

}  // namespace stagewire
