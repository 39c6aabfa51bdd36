// Helpers of tensors, values and payloads.
#include <gtest/gtest.h>

#include <stagewire/payload/payload.h>

#include "payload/support.h"

namespace stagewire {
namespace {

Tensor strided(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  Tensor t;
  t.dtype = DType::f32;
  t.shape = std::move(shape);
  t.strides = std::move(strides);
  return t;
}

TEST(Tensor, CountsElementsAndBytes) {
  const std::byte data[64]{};
  const Tensor t = Tensor::over(DType::bf16, {2, 3, 4}, data).value();
  EXPECT_EQ(t.elements(), 24U);
  EXPECT_EQ(t.bytes(), 48U);
  const Tensor scalar = Tensor::over(DType::c128, {}, data).value();
  EXPECT_EQ(scalar.elements(), 1U);
  EXPECT_EQ(scalar.bytes(), 16U);
  const Tensor empty = Tensor::over(DType::f64, {3, 0, 5}, nullptr).value();
  EXPECT_EQ(empty.elements(), 0U);
  EXPECT_EQ(empty.bytes(), 0U);
}

TEST(Tensor, KnowsWhetherItIsContiguous) {
  EXPECT_TRUE(strided({2, 3}, {}).contiguous());
  EXPECT_TRUE(strided({2, 3}, {12, 4}).contiguous());
  EXPECT_TRUE(strided({}, {}).contiguous());
  EXPECT_TRUE(strided({1, 3}, {-999, 4}).contiguous());  // the stride of a dimension of 1 is never used
  EXPECT_TRUE(strided({0, 3}, {1, 1}).contiguous());
  EXPECT_FALSE(strided({2, 3}, {4, 8}).contiguous());   // transposed
  EXPECT_FALSE(strided({2, 3}, {16, 4}).contiguous());  // padded rows
  EXPECT_FALSE(strided({3}, {-4}).contiguous());        // reversed
  EXPECT_FALSE(strided({3}, {0}).contiguous());         // broadcast
  EXPECT_FALSE(strided({2, 3}, {4}).contiguous());      // malformed
}

TEST(Tensor, RefusesShapesThatMakeNoSense) {
  const std::byte byte{};
  const std::int64_t large = std::int64_t{1} << 62;
  EXPECT_EQ(Tensor::over(DType::u8, {-1}, &byte).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(Tensor::over(DType::u8, {large, large}, &byte).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(Tensor::over(DType::u8, {large, 4}, &byte).error().kind(), ErrorKind::invalid_argument);
  // A zero does not hide an overflow: NumPy multiplies the other dimensions.
  EXPECT_EQ(Tensor::over(DType::u8, {large, large, 0}, &byte).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(Tensor::over(DType::u8, {1}, nullptr).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(Tensor::over(DType::u8, std::vector<std::int64_t>(33, 1), &byte).error().kind(),
            ErrorKind::invalid_argument);
  EXPECT_TRUE(Tensor::over(DType::u8, std::vector<std::int64_t>(32, 1), &byte).ok());
  EXPECT_TRUE(Tensor::over(DType::u8, {std::int64_t{1} << 47}, &byte).ok());
  EXPECT_FALSE(Tensor::over(DType::u8, {(std::int64_t{1} << 47) + 1}, &byte).ok());
  EXPECT_FALSE(Tensor::over(DType::u16, {std::int64_t{1} << 47}, &byte).ok());
}

TEST(Tensor, KeepsItsHold) {
  auto bytes = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = bytes;
  {
    const int* data = bytes.get();
    const Tensor t = Tensor::over(DType::i32, {1}, data, std::move(bytes)).value();
    const Tensor copy = t;
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Value, ComparesTypesValuesAndOrder) {
  EXPECT_EQ(Value(List{{Value(1), Value("a")}}), Value(List{{Value(1), Value("a")}}));
  EXPECT_NE(Value(List{{Value(1)}}), Value(Tuple{{Value(1)}}));
  EXPECT_NE(Value("a"), Value(Bytes{"a"}));
  EXPECT_NE(Value(1), Value(1.0));
  EXPECT_NE(Value(1), Value(true));
  const Dict ab{{{DictKey("a"), Value(1)}, {DictKey("b"), Value(2)}}};
  const Dict ba{{{DictKey("b"), Value(2)}, {DictKey("a"), Value(1)}}};
  EXPECT_EQ(Value(ab), Value(ab));
  EXPECT_NE(Value(ab), Value(ba));
  EXPECT_TRUE(Value().is_none());
  EXPECT_FALSE(Value(0).is_none());
}

TEST(Payload, FindsTensorsByTextKey) {
  const Payload dict = Payload::of(std::vector<std::pair<std::string, Tensor>>{
      {"k", testing::random_tensor(DType::f32, {2}, 1)}, {"v", testing::random_tensor(DType::f32, {3}, 2)}});
  ASSERT_NE(dict.find("v"), nullptr);
  EXPECT_EQ(dict.find("v")->shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(dict.find("x"), nullptr);
  EXPECT_EQ(dict.find(""), nullptr);
  EXPECT_EQ(dict.tensor_bytes(), 20U);

  const Payload one = Payload::of(testing::random_tensor(DType::u8, {4}, 3));
  ASSERT_NE(one.find(""), nullptr);
  EXPECT_EQ(one.find("k"), nullptr);

  const Payload broken(Value(TensorRef{5}), {});
  EXPECT_EQ(broken.find(""), nullptr);
  const Payload none(Value("text"), {});
  EXPECT_EQ(none.find(""), nullptr);
}

}  // namespace
}  // namespace stagewire
