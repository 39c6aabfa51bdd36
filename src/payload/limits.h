// The bounds of a payload, checked by the sender's encode() and again by the receiver's decode_header(), each
// with its reason. Constants alone: any thread, no owner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagewire {

/// Containers inside containers. Values are destroyed, compared and converted to Python recursively, so the
/// depth bounds those stacks; real payloads nest 3 or 4 deep. A list that contains itself ends here too.
inline constexpr std::size_t kMaxPayloadDepth = 64;

/// Values and dict keys in one tree. A node takes at most 80 bytes in memory (a key and its value), so a tree
/// stays below about 100 MB however small its encoding is.
inline constexpr std::size_t kMaxPayloadNodes = std::size_t{1} << 20;

/// Bytes of an encoded header, and with it of any text or bytes value. Larger values belong into a u8 tensor,
/// which is not copied through the header.
inline constexpr std::size_t kMaxHeaderSize = std::size_t{8} << 20;

/// Tensors of one payload. A large model has a few hundred layers with a handful of tensors each; 100,000
/// leaves room for one tensor per page of a small paged cache.
inline constexpr std::size_t kMaxTensors = 100'000;

/// Dimensions of one tensor: what NumPy 1 can hold.
inline constexpr std::size_t kMaxDims = 32;

/// Bytes of a body, and of each tensor in it: the user half of a 48-bit address space. Offsets below it can
/// be added and rounded up without overflow checks. A tensor with a dimension of 0 must stay below it with
/// that dimension left out, because NumPy and torch multiply the others.
inline constexpr std::uint64_t kMaxBodySize = std::uint64_t{1} << 47;

}  // namespace stagewire
