// One read in progress over data connections: its ranges, the plan that cuts it into chunks, and how far each
// chunk is. The plan is fixed when the read starts; the progress is guarded by PeerReads' mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <stagewire/base/error.h>

#include "transport/tcp/tcp_options.h"
#include "transport/transport.h"

namespace stagewire {

/// A piece of a read that one request asks for: where it starts in either range list, and its length.
struct Chunk {
  std::uint32_t from_index = 0;
  std::uint32_t to_index = 0;
  std::uint64_t from_offset = 0;  ///< bytes into from[from_index]
  std::uint64_t to_offset = 0;    ///< bytes into to[to_index]
  std::uint32_t length = 0;       ///< bytes; ≤ kMaxChunkSize
  std::uint8_t attempts = 0;      ///< how often it was asked for
  bool complete = false;
};

struct TcpRead {
  // Fixed once started; read by data threads without a lock.
  ReadId id = 0;
  std::uint64_t lease = 0;
  std::vector<RemoteRange> from;  ///< no empty ranges; neighbours that touch are merged
  std::vector<LocalRange> to;     ///< likewise

  // Guarded by PeerReads' mutex, but for the positions and lengths in `chunks`, which are fixed as well.
  std::vector<Chunk> chunks;
  std::uint32_t next = 0;            ///< the first chunk that was never asked for
  std::vector<std::uint32_t> again;  ///< chunks to ask for once more
  std::uint32_t complete = 0;        ///< distinct chunks in place
  std::uint32_t outstanding = 0;     ///< chunks a connection may still write to the destination for
  std::optional<Error> error;        ///< set: no more requests; ends with it once outstanding is 0

  bool has_work() const noexcept { return !error && (!again.empty() || next < chunks.size()); }
};

/// Takes the ranges (which check_request accepted) out of `request` and cuts the read into chunks of at most
/// `chunk_size` bytes and kMaxChunkRanges source ranges. Errors: too_large (more than 2^32 − 1 chunks or
/// ranges).
Result<TcpRead> plan_read(ReadRequest request, std::uint64_t chunk_size);

/// The chunk size for a read of `total` bytes: smaller than the option when the connections would otherwise
/// not all get something to do.
std::uint64_t chunk_size_for(std::uint64_t total, const TcpOptions& options) noexcept;

/// The source ranges of one chunk.
void chunk_ranges(const TcpRead& read, const Chunk& chunk, std::vector<RemoteRange>& out);

}  // namespace stagewire
