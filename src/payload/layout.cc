// Sizes and offsets of segments. Stateless; any thread.
#include "payload/layout.h"

#include <stagewire/memory/pool.h>

#include "payload/limits.h"

namespace stagewire {

std::optional<std::uint64_t> packed_bytes(DType dtype, std::span<const std::int64_t> shape) noexcept {
  std::uint64_t bytes = size_of(dtype);
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes) || bytes > kMaxBodySize) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    if (i == kMaxDims) {
      text += "…";
      break;
    }
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

bool BodyLayout::place(Segment& segment) noexcept {
  // Both terms are at most kMaxBodySize (2^47): neither the rounding nor the sum can overflow.
  const std::uint64_t offset = (size_ + (kBufferAlignment - 1)) / kBufferAlignment * kBufferAlignment;
  if (segment.length > kMaxBodySize || offset > kMaxBodySize - segment.length) return false;
  segment.offset = offset;
  size_ = offset + segment.length;
  return true;
}

}  // namespace stagewire
