// See tcp_read.h.
#include "transport/tcp/tcp_read.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace stagewire {

namespace {

std::vector<RemoteRange> merge(std::vector<RemoteRange> ranges) {
  std::size_t kept = 0;
  for (const RemoteRange& range : ranges) {
    if (range.length == 0) continue;
    if (kept != 0) {
      RemoteRange& last = ranges[kept - 1];
      if (last.memory == range.memory && last.offset + last.length == range.offset) {
        last.length += range.length;
        continue;
      }
    }
    ranges[kept++] = range;
  }
  ranges.resize(kept);
  return ranges;
}

std::vector<LocalRange> merge(std::vector<LocalRange> ranges) {
  std::size_t kept = 0;
  for (const LocalRange& range : ranges) {
    if (range.length == 0) continue;
    if (kept != 0 && ranges[kept - 1].data + ranges[kept - 1].length == range.data) {
      ranges[kept - 1].length += range.length;
      continue;
    }
    ranges[kept++] = range;
  }
  ranges.resize(kept);
  return ranges;
}

}  // namespace

Result<TcpRead> plan_read(ReadRequest request, std::uint64_t chunk_size) {
  constexpr std::uint64_t kMaxCount = std::numeric_limits<std::uint32_t>::max();
  TcpRead read;
  read.lease = request.lease;
  read.from = merge(std::move(request.from));
  read.to = merge(std::move(request.to));
  std::uint64_t left = 0;
  for (const RemoteRange& range : read.from) left += range.length;
  const std::uint64_t most_chunks = left / chunk_size + read.from.size() / kMaxChunkRanges + 2;
  if (read.from.size() > kMaxCount || read.to.size() > kMaxCount || most_chunks > kMaxCount) {
    return Error(ErrorKind::too_large,
                 "the read would need more than 2^32 ranges or chunks; read it in parts");
  }
  read.chunks.reserve(most_chunks);
  Chunk at;  // the next chunk's start
  while (left != 0) {
    Chunk chunk = at;
    std::uint64_t length = 0;
    for (std::size_t pieces = 0; pieces < kMaxChunkRanges && length < chunk_size && length < left; ++pieces) {
      const RemoteRange& range = read.from[at.from_index];
      const std::uint64_t size = std::min(range.length - at.from_offset, chunk_size - length);
      length += size;
      at.from_offset += size;
      if (at.from_offset == range.length) {
        ++at.from_index;
        at.from_offset = 0;
      }
    }
    chunk.length = static_cast<std::uint32_t>(length);
    read.chunks.push_back(chunk);
    left -= length;
    for (std::uint64_t skip = length; skip != 0;) {
      const std::uint64_t size = std::min(read.to[at.to_index].length - at.to_offset, skip);
      skip -= size;
      at.to_offset += size;
      if (at.to_offset == read.to[at.to_index].length) {
        ++at.to_index;
        at.to_offset = 0;
      }
    }
  }
  return read;
}

std::uint64_t chunk_size_for(std::uint64_t total, const TcpOptions& options) noexcept {
  // Rounded up to whole pages, so that the connections' copies meet at page boundaries.
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t share = (total / options.connections + kPage) / kPage * kPage;
  return std::clamp(share, std::min(kMinChunkSize, options.chunk_size), options.chunk_size);
}

void chunk_ranges(const TcpRead& read, const Chunk& chunk, std::vector<RemoteRange>& out) {
  out.clear();
  std::uint64_t left = chunk.length;
  std::uint64_t offset = chunk.from_offset;
  for (std::size_t i = chunk.from_index; left != 0; ++i) {
    const RemoteRange& range = read.from[i];
    const std::uint64_t size = std::min(range.length - offset, left);
    out.push_back({range.memory, range.offset + offset, size});
    left -= size;
    offset = 0;
  }
}

}  // namespace stagewire
