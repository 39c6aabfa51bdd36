// Plans of reads, checked against a byte-by-byte model. Pure functions.
#include "transport/verbs/read_plan.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "../support.h"

namespace stagewire::testing_support {
namespace {

using Memories = std::map<std::uint32_t, RemoteMemory>;

const RemoteMemory* find(const void* context, std::uint32_t memory) {
  const auto& memories = *static_cast<const Memories*>(context);
  const auto found = memories.find(memory);
  return found == memories.end() ? nullptr : &found->second;
}

class ReadPlanTest : public ::testing::Test {
 protected:
  // Destinations are only counted with, never written.
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
  std::byte* base() { return bytes_.data(); }
  std::uintptr_t address(std::size_t offset) { return reinterpret_cast<std::uintptr_t>(base() + offset); }
  std::vector<LocalMemory> all() { return {{address(0), bytes_.size(), 5}}; }
  ReadPlan plan(const std::vector<RemoteRange>& from, const std::vector<LocalRange>& to, PlanLimits limits,
                const std::vector<LocalMemory>& local) {
    auto made = plan_read(from, to, find, &memories_, local, limits);
    EXPECT_TRUE(made.ok()) << made.error();
    return made.ok() ? *made : ReadPlan();
  }
  ReadPlan plan(const std::vector<RemoteRange>& from, const std::vector<LocalRange>& to, PlanLimits limits) {
    return plan(from, to, limits, all());
  }

  Memories memories_{{1, {0x10000, 1 << 20, 1 << 20, {11}}}};
};

TEST_F(ReadPlanTest, OneRangeIsOneRequest) {
  const ReadPlan made = plan({{1, 100, 5000}}, {{base(), 5000}}, {1 << 20, 4});
  ASSERT_EQ(made.reads.size(), 1U);
  EXPECT_EQ(made.reads[0].remote, 0x10000U + 100);
  EXPECT_EQ(made.reads[0].rkey, 11U);
  EXPECT_EQ(made.reads[0].length, 5000U);
  ASSERT_EQ(made.pieces.size(), 1U);
  EXPECT_EQ(made.pieces[0].addr, address(0));
  EXPECT_EQ(made.pieces[0].lkey, 5U);
}

TEST_F(ReadPlanTest, AdjacentRangesAreCoalesced) {
  const ReadPlan made = plan({{1, 0, 100}, {1, 100, 50}, {1, 150, 0}, {1, 150, 7}},
                             {{base(), 30}, {base() + 30, 0}, {base() + 30, 127}}, {1 << 20, 1});
  ASSERT_EQ(made.reads.size(), 1U);
  EXPECT_EQ(made.reads[0].length, 157U);
  EXPECT_EQ(made.pieces.size(), 1U);
}

TEST_F(ReadPlanTest, IsCutAtTheChunkSize) {
  const ReadPlan made = plan({{1, 0, 10'000}}, {{base(), 10'000}}, {4096, 4});
  ASSERT_EQ(made.reads.size(), 3U);
  EXPECT_EQ(made.reads[0].length, 4096U);
  EXPECT_EQ(made.reads[2].length, 10'000U - 2 * 4096);
}

TEST_F(ReadPlanTest, ChunksOfCoalescedRangesAreFull) {
  std::vector<RemoteRange> from;
  for (std::uint64_t i = 0; i < 10; ++i) from.push_back({1, i * 1000, 1000});
  const ReadPlan made = plan(from, {{base(), 10'000}}, {4096, 4});
  ASSERT_EQ(made.reads.size(), 3U);
  EXPECT_EQ(made.reads[0].length, 4096U);
  EXPECT_EQ(made.reads[1].length, 4096U);
}

TEST_F(ReadPlanTest, IsCutAtTheBordersOfRemoteRegistrations) {
  memories_[2] = {0x200000, 10'000, 4096, {21, 22, 23}};
  const ReadPlan made = plan({{2, 4000, 5000}}, {{base(), 5000}}, {1 << 20, 4});
  ASSERT_EQ(made.reads.size(), 3U);
  EXPECT_EQ(made.reads[0].rkey, 21U);
  EXPECT_EQ(made.reads[0].length, 96U);
  EXPECT_EQ(made.reads[1].rkey, 22U);
  EXPECT_EQ(made.reads[1].length, 4096U);
  EXPECT_EQ(made.reads[1].remote, 0x200000U + 4096);
  EXPECT_EQ(made.reads[2].rkey, 23U);
}

TEST_F(ReadPlanTest, LocalRegistrationsAndScatteredPiecesAreGathered) {
  const std::vector<LocalMemory> local{{address(0), 100, 1}, {address(100), 100, 2}, {address(5000), 100, 3}};
  const std::vector<LocalRange> to{{base() + 5000, 50}, {base() + 50, 100}};
  const ReadPlan two = plan({{1, 0, 150}}, to, {1 << 20, 2}, local);
  ASSERT_EQ(two.reads.size(), 2U);
  EXPECT_EQ(two.reads[0].sge_count, 2U);
  EXPECT_EQ(two.reads[0].length, 100U);
  EXPECT_EQ(two.reads[1].length, 50U);
  EXPECT_EQ(two.pieces[two.reads[1].first_sge].lkey, 2U);
  EXPECT_EQ(plan({{1, 0, 150}}, to, {1 << 20, 3}, local).reads.size(), 1U);
  EXPECT_EQ(plan({{1, 0, 150}}, to, {1 << 20, 1}, local).reads.size(), 3U);
}

TEST_F(ReadPlanTest, UnknownMemoryAndUnregisteredDestinationsAreErrors) {
  const std::vector<RemoteRange> unknown{{9, 0, 10}};
  const std::vector<RemoteRange> known{{1, 0, 10}};
  const std::vector<LocalRange> to{{base() + 95, 10}};
  EXPECT_EQ(plan_read(unknown, to, find, &memories_, all(), {}).error().kind(), ErrorKind::not_viable);
  EXPECT_EQ(plan_read(known, to, find, &memories_, {}, {}).error().kind(), ErrorKind::internal);
  const std::vector<LocalMemory> short_of{{address(0), 100, 1}};
  EXPECT_EQ(plan_read(known, to, find, &memories_, short_of, {}).error().kind(), ErrorKind::internal);
  const std::vector<LocalMemory> above{{address(200), 100, 1}};
  EXPECT_EQ(plan_read(known, to, find, &memories_, above, {}).error().kind(), ErrorKind::internal);
}

// Every byte goes where the two lists say, whatever the limits.
TEST_F(ReadPlanTest, AgreesWithAByteByByteModel) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t piece = 4096U << random() % 3U;
    const std::uint64_t size = 1 << 17;
    memories_[1] = {0x40000000, size, piece, {}};
    for (std::uint64_t i = 0; i * piece < size; ++i)
      memories_[1].rkeys.push_back(static_cast<std::uint32_t>(1000 + i));
    std::vector<LocalMemory> local;
    for (std::size_t at = 0; at < bytes_.size();) {
      const std::size_t length = std::min<std::size_t>(1 + random() % 60'000U, bytes_.size() - at);
      local.push_back({address(at), length, static_cast<std::uint32_t>(local.size() + 1)});
      at += length;
    }
    std::vector<RemoteRange> from;
    std::vector<LocalRange> to;
    std::map<std::uintptr_t, std::uint64_t> expected;  // destination, remote address
    std::vector<std::uint64_t> sources;
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < 1 + random() % 20U; ++i) {
      const std::uint64_t length = random() % 3000U;
      if (random() % 2U == 0 || at + length > size) at = random() % (size - length);
      from.push_back({1, at, length});
      for (std::uint64_t b = 0; b < length; ++b) sources.push_back(0x40000000 + at + b);
      at += length;
    }
    std::size_t used = 0;
    std::size_t where = 0;
    while (used < sources.size()) {
      const std::size_t length = std::min<std::size_t>(random() % 4000U, sources.size() - used);
      if (random() % 2U == 0) where += random() % 5000U;
      to.push_back({base() + where, length});
      for (std::size_t b = 0; b < length; ++b) expected[address(where + b)] = sources[used + b];
      where += length;
      used += length;
    }
    const PlanLimits limits{static_cast<std::uint32_t>(1 + random() % 5000U),
                            1 + static_cast<std::uint32_t>(random() % 4U)};
    const ReadPlan made = plan(from, to, limits, local);
    std::map<std::uintptr_t, std::uint64_t> planned;
    for (const PlannedRead& read : made.reads) {
      ASSERT_LE(read.length, limits.chunk);
      ASSERT_GE(read.sge_count, 1U);
      ASSERT_LE(read.sge_count, limits.max_sge);
      std::uint64_t remote = read.remote;
      for (std::uint32_t s = 0; s < read.sge_count; ++s) {
        const ibv_sge& sge = made.pieces[read.first_sge + s];
        const LocalMemory& memory = local[sge.lkey - 1];
        ASSERT_GE(sge.addr, memory.address);
        ASSERT_LE(sge.addr + sge.length, memory.address + memory.size);
        for (std::uint32_t b = 0; b < sge.length; ++b) {
          ASSERT_TRUE(planned.emplace(sge.addr + b, remote).second);
          ASSERT_EQ(read.rkey, 1000 + (remote - 0x40000000) / piece);
          ++remote;
        }
      }
      ASSERT_EQ(remote - read.remote, read.length);
    }
    ASSERT_TRUE(planned == expected) << round;
  }
}

TEST(PagesOf, RoundsSortsAndMerges) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); };
  const std::vector<LocalRange> ranges{
      {at(0x5010), 0x10}, {at(0x1FFF), 2}, {at(0x9000), 0}, {at(0x3000), 0x1000}, {at(0x5800), 0x900}};
  const std::vector<LocalMemory> pages = pages_of(ranges, 0x1000);
  ASSERT_EQ(pages.size(), 2U);
  EXPECT_EQ(pages[0].address, 0x1000U);
  EXPECT_EQ(pages[0].size, 0x3000U);
  EXPECT_EQ(pages[1].address, 0x5000U);
  EXPECT_EQ(pages[1].size, 0x2000U);
}

}  // namespace
}  // namespace stagewire::testing_support
