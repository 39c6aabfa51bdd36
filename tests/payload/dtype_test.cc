// Names, sizes and wire numbers of element types.
#include <gtest/gtest.h>

#include <stagewire/payload/dtype.h>

namespace stagewire {
namespace {

TEST(DType, SizesNamesAndNumbersArePinned) {
  struct Row {
    DType dtype;
    std::uint64_t number;
    std::string_view name;
    std::size_t size;
  };
  // Written out again: the numbers are the wire format and must not move with the enum.
  const Row rows[] = {
      {DType::boolean, 0, "bool", 1},     {DType::u8, 1, "u8", 1},
      {DType::u16, 2, "u16", 2},          {DType::u32, 3, "u32", 4},
      {DType::u64, 4, "u64", 8},          {DType::i8, 5, "i8", 1},
      {DType::i16, 6, "i16", 2},          {DType::i32, 7, "i32", 4},
      {DType::i64, 8, "i64", 8},          {DType::f16, 9, "f16", 2},
      {DType::bf16, 10, "bf16", 2},       {DType::f32, 11, "f32", 4},
      {DType::f64, 12, "f64", 8},         {DType::f8_e4m3fn, 13, "f8_e4m3fn", 1},
      {DType::f8_e5m2, 14, "f8_e5m2", 1}, {DType::c64, 15, "c64", 8},
      {DType::c128, 16, "c128", 16},
  };
  ASSERT_EQ(std::size(rows), kDTypeCount);
  for (const Row& row : rows) {
    EXPECT_EQ(static_cast<std::uint64_t>(row.dtype), row.number) << row.name;
    EXPECT_EQ(size_of(row.dtype), row.size) << row.name;
    EXPECT_EQ(to_string(row.dtype), row.name);
    EXPECT_EQ(dtype_from_wire(row.number), row.dtype) << row.name;
    EXPECT_EQ(dtype_from_name(row.name), row.dtype) << row.name;
  }
}

TEST(DType, UnknownNumbersAndNamesGiveNothing) {
  EXPECT_EQ(dtype_from_wire(17), std::nullopt);
  EXPECT_EQ(dtype_from_wire(256), std::nullopt);  // not cut to a byte
  EXPECT_EQ(dtype_from_wire(UINT64_MAX), std::nullopt);
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("F32"), std::nullopt);
}

}  // namespace
}  // namespace stagewire
