// Packing of tensors whose bytes do not lie in row-major order: transposes, slices, reversed and broadcast
// dimensions. Stateless; runs on the thread that calls gather().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <stagewire/payload/payload.h>

#include "memory/copy.h"
#include "payload/limits.h"

namespace stagewire {

/// A strided tensor with its dimensions collapsed: `unit` bytes lie together in the source, and the remaining
/// dimensions, outermost first, say where the units lie. Packed row-major, they follow each other.
struct StridedShape {
  struct Dim {
    std::uint64_t count = 1;     ///< ≥ 2
    std::int64_t from_step = 0;  ///< bytes in the source; may be 0 or negative
    std::uint64_t to_step = 0;   ///< bytes in the packed tensor
  };
  std::size_t unit = 0;
  std::size_t rank = 0;
  std::array<Dim, kMaxDims> dims{};

  std::span<const Dim> used() const noexcept { return {dims.data(), rank}; }
};

/// Collapses the dimensions of a tensor that encode() has accepted and that is not empty.
StridedShape collapse(const Tensor& tensor) noexcept;

/// Appends one range per unit.
void append_runs(const StridedShape& shape, const std::byte* from, std::byte* to,
                 std::vector<CopyRange>& ranges);

/// Packs the units to `to` on the calling thread.
void copy_strided(const StridedShape& shape, const std::byte* from, std::byte* to) noexcept;

}  // namespace stagewire
