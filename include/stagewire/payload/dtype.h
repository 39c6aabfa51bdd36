// DType: element types of tensors, with their names and sizes. The numbers are part of the wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stagewire {

enum class DType : std::uint8_t {
  boolean = 0,
  u8 = 1,
  u16 = 2,
  u32 = 3,
  u64 = 4,
  i8 = 5,
  i16 = 6,
  i32 = 7,
  i64 = 8,
  f16 = 9,
  bf16 = 10,
  f32 = 11,
  f64 = 12,
  f8_e4m3fn = 13,
  f8_e5m2 = 14,
  c64 = 15,
  c128 = 16,
};
inline constexpr std::uint8_t kDTypeCount = 17;

/// Bytes per element.
std::size_t size_of(DType dtype) noexcept;
/// The name used in docs, Python and errors: "bool", "u8", …, "bf16", "f8_e4m3fn", "c64".
std::string_view to_string(DType dtype) noexcept;
/// The dtype of a wire number or a name, or nothing.
std::optional<DType> dtype_from_wire(std::uint64_t number) noexcept;
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

}  // namespace stagewire
