// The table of element types. Stateless; any thread.
#include <array>

#include <stagewire/payload/dtype.h>

namespace stagewire {
namespace {

struct Row {
  std::string_view name;
  std::size_t size;
};

/// Indexed by the wire number.
constexpr std::array<Row, kDTypeCount> kRows{{
    {"bool", 1},
    {"u8", 1},
    {"u16", 2},
    {"u32", 4},
    {"u64", 8},
    {"i8", 1},
    {"i16", 2},
    {"i32", 4},
    {"i64", 8},
    {"f16", 2},
    {"bf16", 2},
    {"f32", 4},
    {"f64", 8},
    {"f8_e4m3fn", 1},
    {"f8_e5m2", 1},
    {"c64", 8},
    {"c128", 16},
}};

/// A DType made by a cast from a bad number reads as u8 instead of past the table.
const Row& row(DType dtype) noexcept {
  const auto number = static_cast<std::size_t>(dtype);
  return kRows[number < kRows.size() ? number : static_cast<std::size_t>(DType::u8)];
}

}  // namespace

std::size_t size_of(DType dtype) noexcept {
  return row(dtype).size;
}

std::string_view to_string(DType dtype) noexcept {
  return row(dtype).name;
}

std::optional<DType> dtype_from_wire(std::uint64_t number) noexcept {
  if (number >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(number);
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace stagewire
