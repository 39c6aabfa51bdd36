// The interface of the data plane. A transport does one thing: read ranges of a peer's published memory into
// ranges of this process, and say for certain when an aborted read can no longer touch them. A transport is
// one folder with one Transport (per node) and one Link (per peer); the conformance suite runs against all of
// them.
//
// Threads: every method of Transport and Link is called on the node's loop thread. Completions may run on any
// thread, exactly once, never under a lock; the node brings them back to its loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/deadline.h>
#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>
#include <stagewire/memory/memory_kind.h>
#include <stagewire/memory/pool.h>

#include "base/fd.h"

namespace stagewire {

/// Bytes of a peer's exported memory (a pool or a region), as a grant names them.
struct RemoteRange {
  std::uint32_t memory = 0;  ///< the exporting node's id of the pool or region
  std::uint64_t offset = 0;  ///< bytes from its start
  std::uint64_t length = 0;  ///< bytes
  friend bool operator==(const RemoteRange&, const RemoteRange&) = default;
};

/// Bytes of this process that a read fills. The memory is owned by the operation until the read has settled.
struct LocalRange {
  std::byte* data = nullptr;
  std::uint64_t length = 0;  ///< bytes
  MemoryKind kind = MemoryKind::host();
};

/// Whether something can be used, and if not, why and what would change that.
struct Viability {
  bool viable = false;
  std::string reason;  ///< "same host, proven by …" or "not viable, because …"
};

/// A memory of this node that peers may read: a publish pool, or a region (memory of the caller's own).
struct ExportedMemory {
  std::uint32_t memory = 0;
  std::shared_ptr<Pool> pool;       ///< null for a region
  const std::byte* base = nullptr;  ///< the first byte, of either
  std::uint64_t size = 0;           ///< bytes
  MemoryKind kind = MemoryKind::host();
  std::string name;                  ///< for people
  std::shared_ptr<const void> hold;  ///< while it lives the memory stays mapped; a region's is let go last

  /// `pool` may be null, which no transport exports.
  static ExportedMemory of(std::uint32_t memory, const std::shared_ptr<Pool>& pool) {
    if (pool == nullptr) return {.memory = memory, .pool = {}, .name = {}, .hold = {}};
    return {.memory = memory,
            .pool = pool,
            .base = pool->base(),
            .size = pool->size(),
            .kind = pool->kind(),
            .name = pool->name(),
            .hold = pool};
  }
  bool is_region() const noexcept { return pool == nullptr && base != nullptr; }
};

/// Whether `memory` may be exported over `transport` at all: a publish pool or a region, of host memory.
/// Errors: invalid_argument, not_viable.
Status check_exportable(const ExportedMemory& memory, std::string_view transport);

/// What a peer announced about one of its memories: fixed facts plus this transport's token.
struct ImportedMemory {
  std::uint32_t memory = 0;
  std::uint64_t size = 0;  ///< bytes
  MemoryKind kind = MemoryKind::host();
  std::string token;            ///< opaque bytes written by the peer's transport of the same name; untrusted
  std::vector<Fd> descriptors;  ///< descriptors passed with it (same-host sessions alone)
};

/// What export_memory() gives to be sent to a peer.
struct MemoryToken {
  std::string token;             ///< ≤ kMaxTokenSize bytes
  std::vector<int> descriptors;  ///< borrowed from the pool; duplicated by the kernel when sent
};
inline constexpr std::size_t kMaxTokenSize = 4096;

/// Bytes pinned for one local send. While `hold` lives the bytes are neither reused nor freed.
struct SourcePin {
  const std::byte* data = nullptr;
  MemoryKind kind = MemoryKind::host();
  std::shared_ptr<const void> hold;
};

/// How a transport that serves reads itself (tcp) reaches published memory. Implemented by the node;
/// thread-safe.
class SourceAccess {
 public:
  virtual ~SourceAccess() = default;
  /// Pins `range` for one chunk on behalf of `reader` under `lease`. Errors: lease_lost when the lease is not
  /// live or not that reader's; protocol when the range lies outside what the lease granted. Cheap; called
  /// before each chunk.
  virtual Result<SourcePin> pin(const NodeId& reader, std::uint64_t lease, const RemoteRange& range) = 0;
};

/// What a Link may use of the session to its peer. Loop thread only.
class LinkChannel {
 public:
  virtual ~LinkChannel() = default;
  virtual const NodeId& self() const = 0;
  virtual const NodeId& peer() const = 0;
  /// True if the session runs over an authenticated Unix socket to the very node found at the dialled
  /// address.
  virtual bool same_host() const = 0;
  /// The numeric IP address (v4 or v6) at which the peer was reached or from which it came; empty on Unix
  /// sessions whose peer has no network address.
  virtual const std::string& peer_ip() const = 0;
  /// 32 bytes derived from the session's key for `label` and `index`; both ends of this session derive the
  /// same.
  virtual std::array<std::byte, 32> derive_key(std::string_view label, std::uint64_t index) const = 0;
  /// Identifies this session at both ends (16 bytes), not secret.
  virtual std::array<std::byte, 16> session_id() const = 0;
  /// The opening of a data connection to the peer: 128 bytes that prove (this session, `index`). The
  /// accepting node checks them and calls Link::adopt; an index is good for one connection.
  virtual std::string data_hello(std::uint64_t index) = 0;
  /// Sends an opaque message (≤ 64 KiB) to the same transport's Link at the peer.
  virtual void send(std::string message) = 0;
  /// What Link::viability says has changed by itself: the node chooses its routes anew.
  virtual void viability_changed() {}
};

struct ReadRequest {
  std::uint64_t lease = 0;
  std::vector<RemoteRange> from;
  std::vector<LocalRange> to;  ///< same total length as `from`; cut differently if need be
};

using ReadId = std::uint64_t;
/// Success means every byte of every destination range is in place and visible to any thread that learns of
/// it. Whatever the status, not one byte of the destination is written any more once this runs.
using ReadDone = std::function<void(Status)>;

/// One peer, seen through one transport.
class Link {
 public:
  virtual ~Link() = default;

  /// Whether reads from the peer's `source` memory into our `destination` memory can use this link, and why
  /// (not).
  virtual Viability viability(MemoryKind source, MemoryKind destination) const = 0;

  /// The peer announced a memory. Checks everything about it. An Error makes the memory unusable over this
  /// link and is reported; it does not end the session.
  virtual Status attach(ImportedMemory memory) = 0;

  /// The peer's memory is gone: reads of it that have not begun end with lease_lost, and its id is not used
  /// again. Unknown ids are ignored.
  virtual void detach(std::uint32_t /*memory*/) {}

  /// A message from the peer's Link; untrusted. An Error ends the session (protocol).
  virtual Status on_message(std::string_view message) = 0;

  /// Whether `from` can be handed out as memory without copying; if so, the pointers, which stay valid as
  /// long as the returned hold lives, whatever becomes of the link, the session or the peer. One entry per
  /// range.
  struct View {
    std::vector<const std::byte*> data;
    std::shared_ptr<const void> hold;
  };
  virtual Result<View> view(std::span<const RemoteRange> from) = 0;

  /// Starts a read. `done` runs exactly once, for small or refused reads before this returns.
  virtual ReadId read(ReadRequest request, ReadDone done) = 0;

  /// Stops a read. `settled` runs exactly once, after `done` has run (with `cancelled`, unless the read had
  /// already ended) and after which not one byte of the destination is written any more. Unknown ids settle
  /// at once.
  virtual void abort(ReadId id, std::function<void()> settled) = 0;

  /// An accepted data connection whose opening was authenticated for this session (tcp alone; the default
  /// refuses). The descriptor is non-blocking, and exactly the opening has been read from it. The link
  /// answers the dialling side with the one-byte verdict (0: accepted, else 1 + an ErrorKind), also when it
  /// refuses. Errors: protocol (not this transport's, index used before), busy (too many), closed.
  virtual Status adopt(Fd connection, std::uint64_t index);

  /// Whether `error`, with which a read over this link ended, is about the path rather than the lease or the
  /// request, so that another link may read the same bytes under the same lease.
  virtual bool is_of_path(const Error& /*error*/) const { return false; }

  /// The session is gone or going. Running reads end with peer_lost, each settled first; then `closed` runs.
  /// Nothing else of the link runs after that. Views stay valid.
  virtual void close(std::function<void()> closed) = 0;
};

/// One way of moving bytes, as this node has it. Owned by the node; made on start, closed with it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  /// Whether this host and process can use it at all.
  virtual Viability viability() const = 0;
  /// The order of preference among viable routes: lower is tried first.
  virtual int rank() const = 0;
  /// What this transport tells each peer at the start of a session (≤ kMaxTokenSize bytes): addresses,
  /// devices.
  virtual std::string hello() const = 0;
  /// Makes a memory readable by peers over this transport and says what they need to attach it.
  virtual Result<MemoryToken> export_memory(const ExportedMemory& memory) = 0;
  /// Ends the export. Lets `until` and the memory's own hold go once no peer can read it any more over this
  /// transport, which may be on another thread and after this returns.
  virtual void forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) = 0;
  /// Whether forget_memory() keeps its word while peers hold leases: what regions need. A mapping (shm) can't
  /// be taken back from a peer.
  virtual bool can_fence() const { return true; }
  /// Memory that many reads will have as their destination, for a transport that has to prepare such memory.
  /// It is never exported.
  virtual void add_receive_pool(const std::shared_ptr<Pool>& /*pool*/) {}
  /// More about the choices of the transport than viability() says: whole lines, for people.
  virtual std::string explain() const { return {}; }
  /// A session to a peer is up, and the peer's transport of the same name said `peer_hello` (untrusted). The
  /// channel outlives the link.
  virtual Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) = 0;
  /// Stops threads and connections; every link has been closed before.
  virtual void close() = 0;
};

}  // namespace stagewire
