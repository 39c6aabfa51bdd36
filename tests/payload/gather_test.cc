// gather(): tensors of any strides packed into a body, compared with a copy of one element at a time.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <numeric>

#include "payload/codec.h"
#include "payload/strided.h"
#include "payload/support.h"

namespace stagewire {
namespace {

constexpr std::byte kOld{0xA5};

/// Gathers and checks every byte of the body: tensors packed, gaps zero, nothing behind the end touched.
void expect_gathered(const Payload& payload) {
  CopyEngine engine(2);
  const auto layout = encode(payload).value();
  constexpr std::size_t kBehind = 64;
  testing::BytesVector body(layout.body_size + kBehind, kOld);
  gather(payload, layout, body.data(), engine);

  testing::BytesVector expected(layout.body_size, std::byte{0});
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const auto bytes = testing::packed(payload.tensors()[i]);
    ASSERT_EQ(bytes.size(), layout.segments[i].length);
    std::copy(bytes.begin(), bytes.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(layout.segments[i].offset));
  }
  expected.insert(expected.end(), kBehind, kOld);
  const auto difference = std::mismatch(body.begin(), body.end(), expected.begin());
  EXPECT_EQ(difference.first - body.begin(), static_cast<std::ptrdiff_t>(body.size())) << "first wrong byte";
}

/// Row-major strides in bytes.
std::vector<std::int64_t> dense(const std::vector<std::int64_t>& shape, std::size_t element) {
  std::vector<std::int64_t> strides(shape.size());
  auto stride = static_cast<std::int64_t>(element);
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// A transposed view: dimension i of the view is dimension order[i] of the memory.
Tensor permuted(DType dtype, std::vector<std::int64_t> shape, const std::vector<std::size_t>& order,
                std::uint32_t seed) {
  const auto strides = dense(shape, size_of(dtype));
  Tensor t = testing::random_tensor(dtype, shape, seed);
  t.strides.resize(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    t.shape[i] = shape[order[i]];
    t.strides[i] = strides[order[i]];
  }
  return t;
}

TEST(Gather, PacksContiguousTensorsAndZeroesGaps) {
  Payload payload;
  for (const std::int64_t size : {1, 255, 256, 257, 0, 100'000, 3, 0}) {
    payload.add(testing::random_tensor(DType::u8, {size}, static_cast<std::uint32_t>(size)));
  }
  expect_gathered(payload);
  expect_gathered(Payload());
}

TEST(Gather, PacksTransposesOfEveryElementSize) {
  for (std::uint8_t number = 0; number < kDTypeCount; ++number) {
    const DType dtype = *dtype_from_wire(number);
    Payload payload;
    payload.add(permuted(dtype, {67, 45}, {1, 0}, number));
    payload.add(permuted(dtype, {300, 270}, {1, 0}, number));  // several tiles, the last ones partial
    payload.add(permuted(dtype, {1, 64, 32, 1}, {3, 2, 1, 0}, number));
    payload.add(permuted(dtype, {3, 4, 5}, {1, 2, 0}, number));
    expect_gathered(payload);
  }
}

TEST(Gather, PacksEveryOrderOfFourDimensions) {
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    Payload payload;
    payload.add(permuted(DType::bf16, {3, 5, 2, 7}, order, 9));
    payload.add(permuted(DType::f32, {2, 1, 40, 34}, order, 10));
    expect_gathered(payload);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Gather, PacksSlicesReversedAndBroadcastDimensions) {
  Payload payload;
  Tensor base = testing::random_tensor(DType::f32, {10, 20}, 1);

  Tensor every_second = base;
  every_second.shape = {5, 10};
  every_second.strides = {160, 8};
  payload.add(every_second);

  Tensor reversed = base;  // last row and column first
  reversed.data = static_cast<const std::byte*>(base.data) + 9 * 80 + 19 * 4;
  reversed.strides = {-80, -4};
  payload.add(reversed);

  Tensor rows_reversed = base;
  rows_reversed.data = static_cast<const std::byte*>(base.data) + std::ptrdiff_t{9} * 80;
  rows_reversed.strides = {-80, 4};
  payload.add(rows_reversed);

  Tensor broadcast_rows = base;
  broadcast_rows.shape = {50, 20};
  broadcast_rows.strides = {0, 4};
  payload.add(broadcast_rows);

  Tensor broadcast_columns = base;
  broadcast_columns.shape = {10, 50};
  broadcast_columns.strides = {80, 0};
  payload.add(broadcast_columns);

  Tensor constant = base;
  constant.shape = {7, 8, 9};
  constant.strides = {0, 0, 0};
  payload.add(constant);

  Tensor windows = base;  // overlapping windows of one row
  windows.shape = {16, 5};
  windows.strides = {4, 4};
  payload.add(windows);

  Tensor columns = base;  // a block of columns: runs of 3 elements, no power of two
  columns.shape = {10, 3};
  columns.strides = {80, 4};
  payload.add(columns);

  Tensor empty = base;
  empty.shape = {0, 20};
  empty.strides = {-80, 4};
  payload.add(empty);

  Tensor single = base;
  single.shape = {1, 1};
  single.strides = {-12345, 0};
  payload.add(single);
  expect_gathered(payload);
}

TEST(Gather, PacksUnalignedTensors) {
  Tensor t = testing::random_tensor(DType::u8, {9000}, 3);
  t.dtype = DType::c128;
  t.shape = {20, 20};
  t.strides = {17, 400};
  t.data = static_cast<const std::byte*>(t.data) + 1;
  expect_gathered(Payload::of(t));
}

TEST(Gather, PacksLongRunsThroughTheEngine) {
  // A KV cache cut along its tokens: [heads, tokens, dim] with only the first 300 of 1000 tokens.
  Tensor t = testing::random_tensor(DType::bf16, {8, 1000, 128}, 4);
  t.shape = {8, 300, 128};
  t.strides = {256'000, 256, 2};
  const StridedShape shape = collapse(t);
  EXPECT_EQ(shape.unit, 76'800U);
  EXPECT_EQ(shape.rank, 1U);
  Payload payload = Payload::of(t);
  payload.add(testing::random_tensor(DType::u8, {5000}, 5));
  payload.add(permuted(DType::bf16, {30, 4, 128}, {1, 0, 2}, 6));  // runs of 256 bytes
  expect_gathered(payload);
}

TEST(Gather, PacksTensorsOf32Dimensions) {
  std::vector<std::int64_t> shape(32, 1);
  shape[0] = shape[7] = shape[15] = shape[30] = shape[31] = 3;
  std::vector<std::size_t> order(32);
  std::iota(order.rbegin(), order.rend(), 0U);
  expect_gathered(Payload::of(permuted(DType::u16, shape, order, 7)));
}

TEST(Collapse, JoinsDimensionsThatAreWalkedAsOne) {
  Tensor t = testing::random_tensor(DType::f32, {4, 6, 5}, 1);
  t.shape = {4, 3, 2, 1, 5};
  t.strides = {120, 40, 20, 777, 4};
  const StridedShape whole = collapse(t);
  EXPECT_EQ(whole.rank, 0U);
  EXPECT_EQ(whole.unit, 480U);

  t.shape = {5, 4, 6};
  t.strides = {4, 120, 20};
  const StridedShape moved = collapse(t);
  EXPECT_EQ(moved.unit, 4U);
  ASSERT_EQ(moved.rank, 2U);
  EXPECT_EQ(moved.dims[0].count, 5U);
  EXPECT_EQ(moved.dims[1].count, 24U);
  EXPECT_EQ(moved.dims[1].from_step, 20);
  EXPECT_EQ(moved.dims[1].to_step, 4U);
  EXPECT_EQ(moved.dims[0].to_step, 96U);
}

}  // namespace
}  // namespace stagewire
