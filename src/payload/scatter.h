// Where the bytes of a body go when the receiver has given the destination (`into=`): one block, one tensor
// per segment, or a list of ranges such as the pages of a paged KV cache. Makes the two lists of a transport
// read. Stateless; runs on the thread that starts the get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <stagewire/base/result.h>

#include "payload/codec.h"

namespace stagewire {

/// Bytes of a body.
struct BodyRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const BodyRange&, const BodyRange&) = default;
};

/// A destination range; owned by the caller of get.
using Destination = std::span<std::byte>;

/// What to read and where it goes: the bytes of `from`, one range after the other, fill `to`, one range after
/// the other. Both have the same total length; each is coalesced on its own and has no empty ranges, so they
/// may be cut at different places.
struct ScatterPlan {
  std::vector<BodyRange> from;
  std::vector<Destination> to;
  std::uint64_t bytes = 0;  ///< total length
};

/// The whole body, gaps included, into one block (≥ body_size bytes; the rest stays untouched). Errors:
/// too_large (the block is too small), invalid_argument (null block).
Result<ScatterPlan> scatter_body(std::uint64_t body_size, Destination block);

/// Each tensor into its own contiguous destination of exactly its packed size. Errors: too_large (a
/// destination is too small), invalid_argument (another number of destinations than tensors, one that is
/// larger than its tensor, null, or overlaps another).
Result<ScatterPlan> scatter_tensors(std::span<const Segment> segments,
                                    std::span<const Destination> destinations);

/// The packed bytes of the given segments, one after the other and without the gaps, cut over the ranges in
/// order. For one tensor of many, pass its segment alone. Errors: too_large (the ranges are too small in
/// total), invalid_argument (they are too large in total, null, or overlap).
Result<ScatterPlan> scatter_ranges(std::span<const Segment> segments, std::span<const Destination> ranges);

}  // namespace stagewire
