// The sender's side of the codec: golden bytes of the format, the layout of the body, and what is refused.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "payload/codec.h"
#include "payload/limits.h"
#include "payload/support.h"

namespace stagewire {
namespace {

using ::testing::HasSubstr;

std::string encoded_hex(Value root) {
  return testing::hex(encode(Payload(std::move(root), {})).value().header);
}

Error refusal(const Payload& payload) {
  auto result = encode(payload);
  return result.ok() ? Error(ErrorKind::internal, "it was accepted") : result.error();
}
Error refusal(Value root) {
  return refusal(Payload(std::move(root), {}));
}

Value nested(std::size_t depth) {
  Value value = 1;
  for (std::size_t i = 0; i < depth; ++i) {
    List list;
    list.items.push_back(std::move(value));
    value = std::move(list);
  }
  return value;
}

TEST(Encode, ScalarsHaveTheirGoldenBytes) {
  // 93: array of 3; 01: version; the value; 90: no tensors.
  EXPECT_EQ(encoded_hex(Value()), "9301c090");
  EXPECT_EQ(encoded_hex(true), "9301c390");
  EXPECT_EQ(encoded_hex(false), "9301c290");
  EXPECT_EQ(encoded_hex(5), "93010590");
  EXPECT_EQ(encoded_hex(-1), "9301ff90");
  EXPECT_EQ(encoded_hex(std::int64_t{INT64_MIN}), "9301d3800000000000000090");
  EXPECT_EQ(encoded_hex(std::int64_t{INT64_MAX}), "9301cf7fffffffffffffff90");
  EXPECT_EQ(encoded_hex(std::uint64_t{UINT64_MAX}), "9301cfffffffffffffffff90");
  EXPECT_EQ(encoded_hex(1.5), "9301cb3ff800000000000090");
  EXPECT_EQ(encoded_hex(2.0), "9301cb400000000000000090");  // stays a float
  EXPECT_EQ(encoded_hex("é"), "9301a2c3a990");
  EXPECT_EQ(encoded_hex(Bytes{"\xff"}), "9301c401ff90");
}

TEST(Encode, ContainersAndTensorsHaveTheirGoldenBytes) {
  EXPECT_EQ(encoded_hex(List{}), "9301910090");
  EXPECT_EQ(encoded_hex(Tuple{}), "9301910190");
  EXPECT_EQ(encoded_hex(Dict{}), "9301910290");

  Payload payload;
  const TensorRef a = payload.add(testing::random_tensor(DType::bf16, {2, 300}, 1));
  const TensorRef b = payload.add(testing::random_tensor(DType::c128, {}, 2));
  Dict dict;
  dict.items.emplace_back(DictKey("k"), Value(a));
  dict.items.emplace_back(DictKey(std::int64_t{-3}), Value(Tuple{{Value(b), Value(List{{Value(a)}})}}));
  dict.items.emplace_back(DictKey(Bytes{"z"}), Value());
  payload.root() = std::move(dict);
  const auto encoded = encode(payload).value();
  EXPECT_EQ(testing::hex(encoded.header),
            "9301"
            "9702"  // dict of 3 pairs
            "a16b"
            "920300"  // "k": tensor 0
            "fd"      // -3:
            "9301"
            "920301"  // tuple of tensor 1
            "9200"
            "920300"  // and a list of tensor 0
            "c4017a"
            "c0"  // b"z": nil
            "92"  // two tensors
            "920a"
            "9202cd012c"  // bf16, [2, 300]
            "9210"
            "90");  // c128, 0-d
}

TEST(Encode, LaysSegmentsOutOneAfterTheOtherAligned) {
  Payload payload;
  payload.add(testing::random_tensor(DType::u8, {257}, 1));
  payload.add(testing::random_tensor(DType::f32, {}, 2));
  payload.add(testing::random_tensor(DType::f32, {4, 0}, 3));
  payload.add(testing::random_tensor(DType::u8, {256}, 4));
  payload.add(testing::random_tensor(DType::i16, {3}, 5));
  const auto encoded = encode(payload).value();
  ASSERT_EQ(encoded.segments.size(), 5U);
  const std::uint64_t offsets[] = {0, 512, 768, 768, 1024};
  const std::uint64_t lengths[] = {257, 4, 0, 256, 6};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(encoded.segments[i].offset, offsets[i]) << i;
    EXPECT_EQ(encoded.segments[i].length, lengths[i]) << i;
  }
  EXPECT_EQ(encoded.body_size, 1030U);
  EXPECT_EQ(encode(Payload()).value().body_size, 0U);
}

TEST(Encode, RefusesReferencesToTensorsThatAreNotThere) {
  const Error error = refusal(TensorRef{0});
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("tensor 0 of a payload with 0"));
}

TEST(Encode, RefusesDuplicateKeysInSmallAndLargeDicts) {
  for (const int size : {2, 8, 9, 100}) {
    Dict dict;
    for (int i = 0; i < size; ++i) dict.items.emplace_back(DictKey("key" + std::to_string(i)), Value(i));
    EXPECT_TRUE(encode(Payload(dict, {})).ok()) << size;
    dict.items.back().first = DictKey("key0");
    const Error error = refusal(dict);
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << size;
    EXPECT_THAT(error.message(), HasSubstr("'key0'"));
  }
  // Keys of different types are different keys.
  const Dict mixed{
      {{DictKey("1"), Value()}, {DictKey(Bytes{"1"}), Value()}, {DictKey(std::int64_t{1}), Value()}}};
  EXPECT_TRUE(encode(Payload(mixed, {})).ok());
  const Dict ints{{{DictKey(std::int64_t{1}), Value()}, {DictKey(std::int64_t{1}), Value()}}};
  EXPECT_EQ(refusal(ints).kind(), ErrorKind::invalid_argument);
}

TEST(Encode, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(refusal(Value(std::string("\xff"))).message(), HasSubstr("UTF-8"));
  const Dict dict{{{DictKey("\xed\xa0\x80"), Value()}}};
  EXPECT_THAT(refusal(dict).message(), HasSubstr("dict key"));
}

TEST(Encode, BoundsTheDepth) {
  EXPECT_TRUE(encode(Payload(nested(kMaxPayloadDepth), {})).ok());
  const Error error = refusal(nested(kMaxPayloadDepth + 1));
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("more than 64 containers"));
}

TEST(Encode, BoundsTheNumberOfNodes) {
  List list;
  list.items.resize(kMaxPayloadNodes - 1);  // the list itself is a node
  EXPECT_TRUE(encode(Payload(list, {})).ok());
  list.items.emplace_back();
  EXPECT_EQ(refusal(list).kind(), ErrorKind::invalid_argument);
  list.items.resize(kMaxPayloadNodes + 1);
  EXPECT_THAT(refusal(std::move(list)).message(), HasSubstr("items"));
}

TEST(Encode, BoundsTheHeader) {
  const Error error = refusal(Value(Bytes{std::string(kMaxHeaderSize, 'x')}));
  EXPECT_EQ(error.kind(), ErrorKind::too_large);
  EXPECT_THAT(error.message(), HasSubstr("u8 tensors"));
  EXPECT_EQ(refusal(Value(std::string(kMaxHeaderSize + 1, 'x'))).kind(), ErrorKind::too_large);
  List two;
  two.items.emplace_back(Bytes{std::string(kMaxHeaderSize / 2, 'x')});
  two.items.emplace_back(Bytes{std::string(kMaxHeaderSize / 2, 'x')});
  EXPECT_EQ(refusal(std::move(two)).kind(), ErrorKind::too_large);

  // The largest text that fits is accepted by both sides: 9 bytes are array, version, text length and table.
  const auto largest = encode(Payload(Value(std::string(kMaxHeaderSize - 8, 'x')), {}));
  ASSERT_TRUE(largest.ok()) << largest.error();
  EXPECT_EQ(largest->header.size(), kMaxHeaderSize);
  EXPECT_TRUE(decode_header(largest->header).ok());
  EXPECT_EQ(refusal(Value(std::string(kMaxHeaderSize - 7, 'x'))).kind(), ErrorKind::too_large);
}

TEST(Encode, BoundsTheNumberOfTensors) {
  Tensor empty;
  empty.shape = {0};
  Payload payload;
  for (std::size_t i = 0; i < kMaxTensors; ++i) payload.add(empty);
  EXPECT_TRUE(encode(payload).ok());
  payload.add(empty);
  EXPECT_EQ(refusal(payload).kind(), ErrorKind::invalid_argument);
}

class EncodeTensor : public ::testing::Test {
 protected:
  EncodeTensor() {
    good_.dtype = DType::f32;
    good_.shape = {2, 2};
    good_.data = data_;
  }
  ErrorKind kind_of(const Tensor& tensor) { return refusal(Payload::of(tensor)).kind(); }

  const float data_[4]{};
  Tensor good_;
};

TEST_F(EncodeTensor, RefusesWhatCannotBeATensor) {
  ASSERT_TRUE(encode(Payload::of(good_)).ok());
  Tensor t = good_;
  t.dtype = static_cast<DType>(17);
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.shape = {2, -2};
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.strides = {8};
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.strides = {INT64_MIN, 4};
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.strides = {-(std::int64_t{1} << 48), 4};
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.data = nullptr;
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.kind = MemoryKind{MemoryKind::Type::cuda, 1};
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
  t = good_;
  t.shape = std::vector<std::int64_t>(33, 1);
  EXPECT_EQ(kind_of(t), ErrorKind::invalid_argument);
}

TEST_F(EncodeTensor, BoundsTheBody) {
  Tensor t = good_;
  t.shape = {std::int64_t{1} << 45};  // × 4 bytes: just fits
  Payload payload = Payload::of(t);
  EXPECT_TRUE(encode(payload).ok());
  payload.add(good_);
  EXPECT_EQ(refusal(payload).kind(), ErrorKind::too_large);
  t.shape = {INT64_MAX, INT64_MAX};
  EXPECT_EQ(kind_of(t), ErrorKind::too_large);
  t.shape = {INT64_MAX, INT64_MAX, 0};
  EXPECT_EQ(kind_of(t), ErrorKind::too_large);
}

}  // namespace
}  // namespace stagewire
