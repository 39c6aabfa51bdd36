// The payload codec: tree ⇄ header bytes, tensors ⇄ segments of one body. The header is msgpack and small
// (its format is described in encode.cc); the body is the tensors' packed bytes, each segment 256-byte
// aligned, in table order. decode_header treats its input as hostile. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/result.h>
#include <stagewire/payload/payload.h>

#include "memory/copy.h"

namespace stagewire {

/// Where segment i of the body starts and how long it is.
struct Segment {
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< bytes from the start of the body, a multiple of kBufferAlignment
  std::uint64_t length = 0;  ///< packed bytes; 0 for empty tensors
};

/// A payload that has been laid out but not copied.
struct EncodedPayload {
  std::string header;
  std::vector<Segment> segments;  ///< one per tensor of the payload
  std::uint64_t body_size = 0;    ///< bytes; offset + length of the last segment, not rounded up
};

/// Lays out `payload` and encodes its header. Not recursive. Bounds stand with their reasons in limits.h.
/// Errors: invalid_argument (tensor reference out of range, duplicate dict key, text that is not UTF-8,
/// nesting or counts above the bounds, a tensor whose shape, strides or data make no sense, device memory);
/// too_large (header or body above the bounds).
Result<EncodedPayload> encode(const Payload& payload);

/// Gathers the tensors of `payload`, whatever their strides, into `body` (≥ layout.body_size bytes, not
/// overlapping any tensor), where `layout` is what encode() made of this very payload. Contiguous tensors and
/// runs of 4 KiB and more go to `engine` as one job; shorter runs are copied by the calling thread. The gaps
/// between segments are zeroed, so that a peer that may read the body never sees what the memory held before.
void gather(const Payload& payload, const EncodedPayload& layout, std::byte* body, CopyEngine& engine);

/// What a header says: the tree, and the segments its tensors lie in.
struct DecodedHeader {
  Value root;
  std::vector<Segment> segments;
  std::uint64_t body_size = 0;
};

/// Decodes a header from a peer, which must be in private memory (it is read more than once). Errors:
/// protocol, naming the field and the bound. Nothing is allocated from an announced count: memory follows the
/// bytes that are there, at most about 80 bytes (twice that while a container grows) for each value or key,
/// whose number is bounded.
Result<DecodedHeader> decode_header(std::string_view header);

/// Builds the payload over a body in memory. `hold` becomes each tensor's hold; `body` may be larger than the
/// header says. Empty tensors get a valid (possibly null) pointer that must not be read. Errors: protocol
/// (segment outside the body).
Result<Payload> assemble(DecodedHeader header, std::span<const std::byte> body, bool read_only,
                         const std::shared_ptr<const void>& hold);

}  // namespace stagewire
