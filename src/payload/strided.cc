// Packing of strided tensors. Stateless; any thread. One thread per call: the engine's workers take lists of
// long ranges only, and a list of single elements would be larger than the tensor.
#include "payload/strided.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace stagewire {
namespace {

using Dim = StridedShape::Dim;

/// Units per side of a tile when rows and columns change places: 256 bytes in each direction. Such copies are
/// bound by address translation, one page per line of the tile; with 256 bytes for each page they ran 1.5
/// times as fast as with 64 (64 MiB transposes), while the largest tile (64 KiB, single bytes) still fits the
/// second-level cache.
constexpr std::uint64_t tile_side(std::size_t unit) noexcept {
  if (unit == 0) return 16;
  return std::max<std::size_t>(256 / unit, 16);
}

std::ptrdiff_t step(std::uint64_t index, std::int64_t stride) noexcept {
  return static_cast<std::ptrdiff_t>(index) * static_cast<std::ptrdiff_t>(stride);
}

/// Calls `visit(from_offset, to_offset)` for every index of `dims`, last dimension fastest.
template <typename Visit>
void for_each_index(std::span<const Dim> dims, Visit visit) {
  std::array<std::uint64_t, kMaxDims> index{};
  std::ptrdiff_t from = 0;
  std::uint64_t to = 0;
  for (;;) {
    visit(from, to);
    std::size_t d = dims.size();
    for (;;) {
      if (d == 0) return;
      --d;
      const Dim& dim = dims[d];
      if (++index[d] < dim.count) {
        from += static_cast<std::ptrdiff_t>(dim.from_step);
        to += dim.to_step;
        break;
      }
      from -= step(dim.count - 1, dim.from_step);
      to -= (dim.count - 1) * dim.to_step;
      index[d] = 0;
    }
  }
}

/// Copies rows × columns units; Size is the unit's size where it is one of the usual element sizes, else 0.
template <std::size_t Size>
class Plane {
 public:
  Plane(std::size_t unit, const Dim& rows, const Dim& columns, bool tiled) noexcept
      : unit_(unit), rows_(rows), columns_(columns), tiled_(tiled) {}

  void copy(const std::byte* from, std::byte* to) const noexcept {
    if (!tiled_) {
      block(from, to, rows_.count, columns_.count);
      return;
    }
    constexpr std::uint64_t kSide = tile_side(Size);
    for (std::uint64_t r = 0; r < rows_.count; r += kSide) {
      for (std::uint64_t c = 0; c < columns_.count; c += kSide) {
        const std::byte* source = from + step(r, rows_.from_step) + step(c, columns_.from_step);
        std::byte* target = to + r * rows_.to_step + c * columns_.to_step;
        const std::uint64_t rows = std::min(kSide, rows_.count - r);
        const std::uint64_t columns = std::min(kSide, columns_.count - c);
        if constexpr (Size == 0) {
          block(source, target, rows, columns);
        } else {
          turn(source, target, rows, columns);
        }
      }
    }
  }

 private:
  void block(const std::byte* from, std::byte* to, std::uint64_t rows, std::uint64_t columns) const noexcept {
    const std::size_t unit = Size == 0 ? unit_ : Size;
    for (std::uint64_t r = 0; r < rows; ++r) {
      const std::byte* source = from + step(r, rows_.from_step);
      std::byte* target = to + r * rows_.to_step;
      for (std::uint64_t c = 0; c < columns; ++c) {
        // memcpy of a constant size is one load and one store, and allows any alignment.
        std::memcpy(target + c * unit, source + step(c, columns_.from_step), unit);
      }
    }
  }

  /// One tile by way of a buffer. Without it, the lines of one side would be touched again and again, and
  /// where the strides are powers of two they all fall into the same few places of the cache.
  void turn(const std::byte* from, std::byte* to, std::uint64_t rows, std::uint64_t columns) const noexcept {
    constexpr std::uint64_t kSide = tile_side(Size);
    alignas(64) std::array<std::byte, kSide * kSide * std::max<std::size_t>(Size, 1)> tile;
    for (std::uint64_t c = 0; c < columns; ++c) {
      const std::byte* source = from + step(c, columns_.from_step);
      for (std::uint64_t r = 0; r < rows; ++r) {
        std::memcpy(tile.data() + (r * kSide + c) * Size, source + step(r, rows_.from_step), Size);
      }
    }
    for (std::uint64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * rows_.to_step, tile.data() + r * kSide * Size, columns * Size);
    }
  }

  std::size_t unit_;
  Dim rows_;
  Dim columns_;
  bool tiled_;
};

template <std::size_t Size>
void copy_planes(const StridedShape& shape, const std::byte* from, std::byte* to) noexcept {
  // The packed tensor's innermost dimension gives the columns. The rows are the dimension in which the source
  // moves least: with the columns they make up the cache lines that are worth using whole.
  std::array<Dim, kMaxDims> dims = shape.dims;
  std::size_t rank = shape.rank;
  const Dim columns = dims[--rank];
  Dim rows;
  bool tiled = false;
  if (rank > 0) {
    const auto outer = std::span(dims).first(rank);
    auto nearest = std::min_element(outer.begin(), outer.end(), [](const Dim& a, const Dim& b) {
      return std::abs(a.from_step) < std::abs(b.from_step);
    });
    tiled = std::abs(nearest->from_step) < std::abs(columns.from_step);
    if (!tiled) nearest = outer.end() - 1;
    rows = *nearest;
    std::move(nearest + 1, outer.end(), nearest);
    --rank;
  }
  const Plane<Size> plane(shape.unit, rows, columns, tiled);
  for_each_index(std::span<const Dim>(dims.data(), rank),
                 [&](std::ptrdiff_t from_offset, std::uint64_t to_offset) {
                   plane.copy(from + from_offset, to + to_offset);
                 });
}

}  // namespace

StridedShape collapse(const Tensor& tensor) noexcept {
  StridedShape out;
  out.unit = size_of(tensor.dtype);
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const auto count = static_cast<std::uint64_t>(tensor.shape[i]);
    if (count == 1) continue;
    const std::int64_t stride = tensor.strides[i];
    if (out.rank > 0) {
      // Two dimensions that are walked like one: a step of the outer is a whole walk of the inner.
      Dim& outer = out.dims[out.rank - 1];
      std::int64_t walk = 0;
      if (!__builtin_mul_overflow(stride, tensor.shape[i], &walk) && walk == outer.from_step) {
        outer.count *= count;
        outer.from_step = stride;
        continue;
      }
    }
    out.dims[out.rank++] = Dim{count, stride, 0};
  }
  if (out.rank > 0 && out.dims[out.rank - 1].from_step == static_cast<std::int64_t>(out.unit)) {
    out.unit *= out.dims[--out.rank].count;
  }
  std::uint64_t packed = out.unit;
  for (std::size_t i = out.rank; i-- > 0;) {
    out.dims[i].to_step = packed;
    packed *= out.dims[i].count;
  }
  return out;
}

void append_runs(const StridedShape& shape, const std::byte* from, std::byte* to,
                 std::vector<CopyRange>& ranges) {
  for_each_index(shape.used(), [&](std::ptrdiff_t from_offset, std::uint64_t to_offset) {
    ranges.push_back(CopyRange{from + from_offset, to + to_offset, shape.unit});
  });
}

void copy_strided(const StridedShape& shape, const std::byte* from, std::byte* to) noexcept {
  if (shape.rank == 0) {
    std::memcpy(to, from, shape.unit);
    return;
  }
  switch (shape.unit) {
    case 1:
      return copy_planes<1>(shape, from, to);
    case 2:
      return copy_planes<2>(shape, from, to);
    case 4:
      return copy_planes<4>(shape, from, to);
    case 8:
      return copy_planes<8>(shape, from, to);
    case 16:
      return copy_planes<16>(shape, from, to);
    default:
      return copy_planes<0>(shape, from, to);
  }
}

}  // namespace stagewire
