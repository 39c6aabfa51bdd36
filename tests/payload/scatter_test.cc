// Plans of reads into given destinations.
#include "payload/scatter.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "payload/support.h"

namespace stagewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The segments of tensors of these sizes.
std::vector<Segment> segments_of(const std::vector<std::int64_t>& sizes) {
  Payload payload;
  for (const std::int64_t size : sizes) payload.add(testing::random_tensor(DType::u8, {size}, 1));
  return encode(payload).value().segments;
}

/// Does what a transport does with a plan.
void read(const ScatterPlan& plan, const testing::BytesVector& body) {
  testing::BytesVector stream;
  for (const BodyRange& range : plan.from) {
    const auto begin = body.begin() + static_cast<std::ptrdiff_t>(range.offset);
    stream.insert(stream.end(), begin, begin + static_cast<std::ptrdiff_t>(range.length));
  }
  ASSERT_EQ(stream.size(), plan.bytes);
  std::size_t at = 0;
  for (const Destination& to : plan.to) {
    ASSERT_LE(at + to.size(), stream.size());
    std::memcpy(to.data(), stream.data() + at, to.size());
    at += to.size();
  }
  EXPECT_EQ(at, stream.size());
}

std::uint64_t total(const std::vector<Destination>& ranges) {
  std::uint64_t sum = 0;
  for (const Destination& range : ranges) sum += range.size();
  return sum;
}

TEST(ScatterBody, TakesTheWholeBodyAtOnce) {
  testing::BytesVector block(1000);
  const auto plan = scatter_body(700, block).value();
  EXPECT_THAT(plan.from, ElementsAre(BodyRange{0, 700}));
  ASSERT_EQ(plan.to.size(), 1U);
  EXPECT_EQ(plan.to[0].data(), block.data());
  EXPECT_EQ(plan.to[0].size(), 700U);
  EXPECT_EQ(plan.bytes, 700U);
  EXPECT_TRUE(scatter_body(1000, block).ok());
}

TEST(ScatterBody, RefusesASmallBlockNamingBothSizes) {
  testing::BytesVector block(699);
  const auto plan = scatter_body(700, block);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind(), ErrorKind::too_large);
  EXPECT_THAT(plan.error().message(), HasSubstr("699"));
  EXPECT_THAT(plan.error().message(), HasSubstr("700"));
}

TEST(ScatterBody, AnEmptyBodyNeedsNothing) {
  const auto plan = scatter_body(0, {}).value();
  EXPECT_TRUE(plan.from.empty());
  EXPECT_TRUE(plan.to.empty());
}

TEST(ScatterTensors, PutsEachTensorIntoItsPlace) {
  const auto segments = segments_of({300, 0, 256, 10});
  const auto body = testing::random_bytes(segments.back().offset + 10, 7);
  testing::BytesVector a(300), c(256), d(10);
  const std::vector<Destination> to{a, {}, c, d};
  const auto plan = scatter_tensors(segments, to).value();
  // 300 bytes leave a gap; 256 bytes and what follows are neighbours.
  EXPECT_THAT(plan.from, ElementsAre(BodyRange{0, 300}, BodyRange{512, 266}));
  EXPECT_EQ(total(plan.to), plan.bytes);
  read(plan, body);
  EXPECT_EQ(a, testing::BytesVector(body.begin(), body.begin() + 300));
  EXPECT_EQ(c, testing::BytesVector(body.begin() + 512, body.begin() + 768));
  EXPECT_EQ(d, testing::BytesVector(body.begin() + 768, body.end()));
}

TEST(ScatterTensors, RefusesOtherSizesAndCounts) {
  const auto segments = segments_of({300, 10});
  testing::BytesVector memory(1000);
  const std::span<std::byte> all(memory);
  const std::vector<Destination> few{all.first(300)};
  auto error = scatter_tensors(segments, few).error();
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("1 destinations for the payload's 2 tensors"));

  const std::vector<Destination> small{all.first(300), all.subspan(300, 9)};
  error = scatter_tensors(segments, small).error();
  EXPECT_EQ(error.kind(), ErrorKind::too_large);
  EXPECT_THAT(error.message(), HasSubstr("destination 1 has 9 bytes"));

  const std::vector<Destination> large{all.first(301), all.subspan(301, 10)};
  error = scatter_tensors(segments, large).error();
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("destination 0 has 301 bytes"));
}

TEST(ScatterRanges, CutsATensorOverPages) {
  const auto segments = segments_of({100, 4096, 50});
  const auto body = testing::random_bytes(segments.back().offset + 50, 3);
  testing::BytesVector pages(8192, std::byte{0});
  std::vector<Destination> ranges;
  for (const std::size_t page : {5U, 1U, 2U, 7U})
    ranges.push_back(std::span(pages).subspan(page * 1024, 1024));
  const auto plan = scatter_ranges(std::span(segments).subspan(1, 1), ranges).value();
  EXPECT_THAT(plan.from, ElementsAre(BodyRange{256, 4096}));
  EXPECT_EQ(plan.to.size(), 3U);  // pages 1 and 2 are neighbours
  read(plan, body);
  const auto tensor = body.begin() + 256;
  EXPECT_TRUE(std::equal(tensor, tensor + 1024, pages.begin() + 5 * 1024));
  EXPECT_TRUE(std::equal(tensor + 1024, tensor + 3072, pages.begin() + 1024));
  EXPECT_TRUE(std::equal(tensor + 3072, tensor + 4096, pages.begin() + 7 * 1024));
  for (const std::size_t untouched : {0U, 3U, 4U, 6U}) {
    EXPECT_EQ(std::count(pages.begin() + static_cast<std::ptrdiff_t>(untouched * 1024),
                         pages.begin() + static_cast<std::ptrdiff_t>(untouched * 1024 + 1024), std::byte{0}),
              1024);
  }
}

TEST(ScatterRanges, CutsSeveralTensorsWithoutTheGaps) {
  const auto segments = segments_of({100, 200});
  const auto body = testing::random_bytes(456, 4);
  testing::BytesVector memory(300);
  const std::vector<Destination> ranges{std::span(memory).first(299), {}, std::span(memory).last(1)};
  const auto plan = scatter_ranges(segments, ranges).value();
  EXPECT_THAT(plan.from, ElementsAre(BodyRange{0, 100}, BodyRange{256, 200}));
  EXPECT_EQ(plan.to.size(), 1U);
  read(plan, body);
  EXPECT_TRUE(std::equal(body.begin(), body.begin() + 100, memory.begin()));
  EXPECT_TRUE(std::equal(body.begin() + 256, body.end(), memory.begin() + 100));
}

TEST(ScatterRanges, RefusesOtherTotals) {
  const auto segments = segments_of({100});
  testing::BytesVector memory(101);
  const std::vector<Destination> small{std::span(memory).first(99)};
  EXPECT_EQ(scatter_ranges(segments, small).error().kind(), ErrorKind::too_large);
  EXPECT_THAT(scatter_ranges(segments, small).error().message(), HasSubstr("99 bytes"));
  const std::vector<Destination> large{memory};
  EXPECT_EQ(scatter_ranges(segments, large).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(scatter_ranges(segments, {}).error().kind(), ErrorKind::too_large);
  EXPECT_TRUE(scatter_ranges({}, {}).ok());
}

TEST(ScatterRanges, RefusesOverlapsInAnyOrder) {
  const auto segments = segments_of({20});
  testing::BytesVector memory(100);
  const std::span<std::byte> all(memory);
  const std::vector<Destination> ascending{all.subspan(0, 10), all.subspan(9, 10)};
  const std::vector<Destination> descending{all.subspan(50, 10), all.subspan(41, 10)};
  const std::vector<Destination> same{all.subspan(5, 10), all.subspan(5, 10)};
  const std::vector<Destination> apart{all.subspan(50, 10), all.subspan(40, 10)};
  for (const auto* ranges : {&ascending, &descending, &same}) {
    const auto plan = scatter_ranges(segments, *ranges);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(plan.error().message(), HasSubstr("overlap"));
  }
  EXPECT_TRUE(scatter_ranges(segments, apart).ok());
}

TEST(ScatterRanges, RefusesNullRanges) {
  const auto segments = segments_of({20});
  std::byte* nowhere = nullptr;
  const std::vector<Destination> ranges{Destination(nowhere, 20)};
  EXPECT_EQ(scatter_ranges(segments, ranges).error().kind(), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace stagewire
