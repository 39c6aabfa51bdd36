// Where tensors lie in a body: sizes from shapes with every overflow checked, and offsets from sizes. Sender
// and receiver compute offsets with the same code, so they are never sent and cannot be forged. Stateless
// functions and one small accumulator; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <stagewire/payload/dtype.h>

#include "payload/codec.h"

namespace stagewire {

/// Packed bytes of a tensor of this shape. Nothing if a dimension is negative or the size is above
/// kMaxBodySize, where dimensions of 0 count as 1.
std::optional<std::uint64_t> packed_bytes(DType dtype, std::span<const std::int64_t> shape) noexcept;

/// The text of a shape for errors, e.g. "[28, 4, 128]"; long shapes are cut.
std::string shape_text(std::span<const std::int64_t> shape);

/// Places segments one after another.
class BodyLayout {
 public:
  /// Sets the offset of `segment`, whose length is set (≤ kMaxBodySize). False if the body would grow above
  /// kMaxBodySize.
  bool place(Segment& segment) noexcept;
  /// Bytes from the start to the end of the last segment.
  std::uint64_t size() const noexcept { return size_; }

 private:
  std::uint64_t size_ = 0;
};

}  // namespace stagewire
