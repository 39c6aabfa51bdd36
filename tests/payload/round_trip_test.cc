// Payloads through encode, gather, decode and assemble.
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "payload/codec.h"
#include "payload/support.h"

namespace stagewire {
namespace {

Value round_trip(Value root) {
  return decode_header(encode(Payload(std::move(root), {})).value().header).value().root;
}

struct Arrived {
  std::shared_ptr<testing::BytesVector> body;
  Payload payload;
};

Arrived round_trip(const Payload& payload) {
  CopyEngine engine(2);
  const auto encoded = encode(payload).value();
  auto body = std::make_shared<testing::BytesVector>(encoded.body_size);
  gather(payload, encoded, body->data(), engine);
  auto header = decode_header(encoded.header).value();
  EXPECT_EQ(header.body_size, encoded.body_size);
  EXPECT_EQ(header.segments.size(), encoded.segments.size());
  for (std::size_t i = 0; i < header.segments.size(); ++i) {
    EXPECT_EQ(header.segments[i].offset, encoded.segments[i].offset);
    EXPECT_EQ(header.segments[i].length, encoded.segments[i].length);
  }
  return {body, assemble(std::move(header), *body, true, body).value()};
}

TEST(RoundTrip, KeepsScalars) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Value& value : {Value(),
                             Value(true),
                             Value(false),
                             Value(0),
                             Value(-1),
                             Value(std::int64_t{INT64_MIN}),
                             Value(std::int64_t{INT64_MAX}),
                             Value(std::uint64_t{UINT64_MAX}),
                             Value(std::uint64_t{1} << 63U),
                             Value(0.0),
                             Value(2.0),
                             Value(kInfinity),
                             Value(-kInfinity),
                             Value(std::numeric_limits<double>::denorm_min()),
                             Value(""),
                             Value(std::string("a\0b", 3)),
                             Value("κόσμε"),
                             Value(std::string(70000, 'x')),
                             Value(Bytes{}),
                             Value(Bytes{std::string("\0\xff\xc0", 3)}),
                             Value(Bytes{std::string(70000, '\xfe')})}) {
    EXPECT_EQ(round_trip(value), value);
  }
}

TEST(RoundTrip, KeepsIntegersAtEveryEncodingBoundary) {
  for (unsigned bit = 0; bit < 63; ++bit) {
    for (const std::int64_t delta : {-1, 0, 1}) {
      const auto number = static_cast<std::int64_t>(std::uint64_t{1} << bit) + delta;
      EXPECT_EQ(round_trip(Value(number)), Value(number));
      EXPECT_EQ(round_trip(Value(-number)), Value(-number));
    }
  }
}

TEST(RoundTrip, UnsignedNumbersThatFitArriveSigned) {
  EXPECT_EQ(round_trip(Value(std::uint64_t{7})), Value(std::int64_t{7}));
}

TEST(RoundTrip, KeepsTheBitsOfNanAndNegativeZero) {
  for (const std::uint64_t bits : {0x7ff8000000000000ULL, 0xfff8000000000123ULL, 0x8000000000000000ULL}) {
    const Value arrived = round_trip(Value(std::bit_cast<double>(bits)));
    ASSERT_NE(arrived.get_if<double>(), nullptr);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*arrived.get_if<double>()), bits);
  }
}

TEST(RoundTrip, KeepsContainersTheirTypesAndOrder) {
  Dict dict;
  for (const char* key : {"z", "a", "", "m"}) dict.items.emplace_back(DictKey(key), Value(key));
  dict.items.emplace_back(DictKey(std::int64_t{INT64_MIN}), Value(Tuple{}));
  dict.items.emplace_back(DictKey(std::int64_t{INT64_MAX}), Value(List{}));
  dict.items.emplace_back(DictKey(std::string("n\0l", 3)), Value(Dict{}));
  dict.items.emplace_back(DictKey(Bytes{"z"}),
                          Value(Tuple{{Value(List{{Value(Tuple{{Value(1)}})}}), Value()}}));
  EXPECT_EQ(round_trip(Value(dict)), Value(dict));

  List wide;
  for (int i = 0; i < 70000; ++i) wide.items.emplace_back(i);
  EXPECT_EQ(round_trip(Value(wide)), Value(wide));
  Dict many;
  for (std::int64_t i = 70000; i > 0; --i) many.items.emplace_back(DictKey(i), Value(List{}));
  EXPECT_EQ(round_trip(Value(many)), Value(many));
}

TEST(RoundTrip, KeepsTensorsOfEveryType) {
  Payload payload;
  List list;
  for (std::uint8_t number = 0; number < kDTypeCount; ++number) {
    const DType dtype = *dtype_from_wire(number);
    list.items.emplace_back(payload.add(testing::random_tensor(dtype, {3, 5}, number)));
    list.items.emplace_back(payload.add(testing::random_tensor(dtype, {}, number + 100U)));
    list.items.emplace_back(payload.add(testing::random_tensor(dtype, {2, 0, 3}, number)));
    list.items.emplace_back(payload.add(testing::random_tensor(dtype, {1, 1, 7, 1}, number + 200U)));
  }
  payload.root() = std::move(list);
  const Arrived arrived = round_trip(payload);
  EXPECT_EQ(arrived.payload.root(), payload.root());
  ASSERT_EQ(arrived.payload.tensors().size(), payload.tensors().size());
  for (std::size_t i = 0; i < payload.tensors().size(); ++i) {
    const Tensor& sent = payload.tensors()[i];
    const Tensor& got = arrived.payload.tensors()[i];
    EXPECT_EQ(got.dtype, sent.dtype);
    EXPECT_EQ(got.shape, sent.shape);
    EXPECT_TRUE(got.contiguous());
    EXPECT_TRUE(got.read_only);
    EXPECT_EQ(testing::packed(got), testing::packed(sent)) << i;
  }
}

TEST(RoundTrip, ATensorNamedTwiceIsOneTensor) {
  Payload payload;
  const TensorRef shared = payload.add(testing::random_tensor(DType::f32, {100}, 1));
  payload.root() = List{{Value(shared), Value(Tuple{{Value(shared)}}), Value(shared)}};
  const Arrived arrived = round_trip(payload);
  EXPECT_EQ(arrived.body->size(), 400U);
  EXPECT_EQ(arrived.payload.root(), payload.root());
  EXPECT_EQ(arrived.payload.tensors().size(), 1U);
}

TEST(RoundTrip, TensorsKeepTheBodyAlive) {
  Arrived arrived = round_trip(Payload::of(testing::random_tensor(DType::u8, {1000}, 1)));
  const std::weak_ptr<testing::BytesVector> watch = arrived.body;
  arrived.body.reset();
  Tensor kept = arrived.payload.tensors()[0];
  arrived.payload = Payload();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(testing::packed(kept), testing::random_bytes(1000, 1));
  kept = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Assemble, ChecksSegmentsAgainstTheBody) {
  const Payload payload = Payload::of(testing::random_tensor(DType::u8, {1000}, 1));
  const auto header = decode_header(encode(payload).value().header).value();
  const testing::BytesVector body(1001);
  EXPECT_TRUE(assemble(header, body, false, nullptr).ok());
  EXPECT_TRUE(assemble(header, std::span(body).first(1000), false, nullptr).ok());
  const auto small = assemble(header, std::span(body).first(999), false, nullptr);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().kind(), ErrorKind::protocol);
  EXPECT_EQ(assemble(header, {}, false, nullptr).error().kind(), ErrorKind::protocol);

  auto forged = header;
  forged.segments[0].offset = UINT64_MAX - 255;
  EXPECT_EQ(assemble(forged, body, false, nullptr).error().kind(), ErrorKind::protocol);
}

TEST(Assemble, EmptyTensorsNeedNoBody) {
  Payload payload;
  payload.root() = List{{Value(payload.add(testing::random_tensor(DType::f32, {0, 4}, 1)))}};
  auto header = decode_header(encode(payload).value().header).value();
  const Payload arrived = assemble(std::move(header), {}, false, nullptr).value();
  EXPECT_EQ(arrived.tensors()[0].bytes(), 0U);
  EXPECT_FALSE(arrived.tensors()[0].read_only);

  // Behind a tensor that fills the body: the pointer stays inside.
  Payload two;
  two.add(testing::random_tensor(DType::u8, {5}, 1));
  two.add(testing::random_tensor(DType::u8, {0}, 1));
  const testing::BytesVector body(5);
  auto cut = decode_header(encode(two).value().header).value();
  const Payload both = assemble(std::move(cut), body, true, nullptr).value();
  EXPECT_EQ(both.tensors()[1].data, body.data());
}

}  // namespace
}  // namespace stagewire
