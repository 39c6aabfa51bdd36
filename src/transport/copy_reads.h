// Reads whose source is already mapped into this process (local, shm): the copy engine fills the destination.
// Owned by a link; its methods run on the node's loop thread, the engine's completions on a copy worker.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory/copy.h"
#include "transport/read_table.h"
#include "transport/transport.h"

namespace stagewire {

/// Where the bytes of one RemoteRange lie in this process.
struct MappedRange {
  const std::byte* data = nullptr;
  std::uint64_t length = 0;  ///< bytes
};

class CopyReads {
 public:
  /// Reads up to this many bytes are copied on the loop thread: handing one to a worker costs more (two
  /// thread wake-ups, tens of microseconds) than copying it (64 KiB at 10 GB/s: 7 microseconds).
  static constexpr std::uint64_t kInlineSize = 64U << 10U;

  explicit CopyReads(CopyEngine& engine);

  /// Copies `from` to `to`, which have the same total length. `hold` keeps the source mapped until the read
  /// has settled.
  ReadId start(std::span<const MappedRange> from, std::span<const LocalRange> to,
               std::shared_ptr<const void> hold, ReadDone done);
  /// A read that ends with `error` without having begun.
  ReadId refuse(Error error, ReadDone done);
  /// As Link::abort.
  void abort(ReadId id, std::function<void()> settled);
  /// As Link::close.
  void close(std::function<void()> closed);

 private:
  // What a copy worker's completion touches; it may outlive the link.
  struct State {
    struct Running {
      CopyEngine::JobId job = 0;
      ErrorKind stopped = ErrorKind::cancelled;  // what the read ends with if it is cut short
    };
    ReadTable table;
    std::mutex mutex;
    std::unordered_map<ReadId, Running> running;
  };
  static void end(State& state, ReadId id, bool complete);

  CopyEngine& engine_;
  std::shared_ptr<State> state_;
};

/// Cuts two range lists of the same total length at the boundaries of both.
std::vector<CopyRange> cut_copies(std::span<const MappedRange> from, std::span<const LocalRange> to);

}  // namespace stagewire
