// What the data threads may send under a lease.
#include "node/lease_table.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <optional>

#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

class LeaseTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::shared_ptr<Pool>> made =
        Pool::create({.name = "p", .size = 1 << 20, .touch_in_background = false});
    ASSERT_TRUE(made.ok());
    pool = *made;
    pool->set_id(4);
    table.add_memory(ExportedMemory::of(pool->id(), pool));
    facts.body = std::make_shared<SourceBody>();
    facts.body->released = [this](EndReason reason) { released = reason; };
    facts.ranges = {{.memory = 4, .offset = 8192, .length = 100},
                    {.memory = 4, .offset = 256, .length = 1000}};
    table.add(1, reader, facts);
  }
  ErrorKind refused(std::uint64_t lease, const NodeId& who, RemoteRange range) {
    const Result<SourcePin> pin = table.pin(who, lease, range);
    EXPECT_FALSE(pin.ok());
    return pin.ok() ? ErrorKind::internal : pin.error().kind();
  }

  const NodeId reader = node_named(1);
  std::shared_ptr<Pool> pool;
  PublicationFacts facts;
  std::optional<EndReason> released;
  LeaseTable table;
};

TEST_F(LeaseTableTest, PinsWhatTheLeaseCovers) {
  for (const RemoteRange range : {RemoteRange{.memory = 4, .offset = 256, .length = 1000},
                                  RemoteRange{.memory = 4, .offset = 300, .length = 1},
                                  RemoteRange{.memory = 4, .offset = 1256, .length = 0},
                                  RemoteRange{.memory = 4, .offset = 8192, .length = 100}}) {
    const Result<SourcePin> pin = table.pin(reader, 1, range);
    ASSERT_TRUE(pin.ok()) << range.offset;
    EXPECT_EQ(pin->data, pool->base() + range.offset);
  }
}

TEST_F(LeaseTableTest, RefusesWhatItDoesNotCover) {
  constexpr std::uint64_t kHuge = UINT64_MAX;
  for (const RemoteRange range : {RemoteRange{.memory = 4, .offset = 255, .length = 1},
                                  RemoteRange{.memory = 4, .offset = 256, .length = 1001},
                                  RemoteRange{.memory = 4, .offset = 1255, .length = 2},
                                  RemoteRange{.memory = 4, .offset = 1257, .length = 0},
                                  RemoteRange{.memory = 4, .offset = 8191, .length = 2},
                                  RemoteRange{.memory = 4, .offset = 0, .length = 1},
                                  RemoteRange{.memory = 4, .offset = 300, .length = kHuge},
                                  RemoteRange{.memory = 4, .offset = kHuge, .length = 2},
                                  RemoteRange{.memory = 3, .offset = 256, .length = 1},
                                  RemoteRange{.memory = 5, .offset = 256, .length = 1}}) {
    EXPECT_EQ(refused(1, reader, range), ErrorKind::protocol) << range.memory << " " << range.offset;
  }
}

TEST_F(LeaseTableTest, RangesMayOverlap) {
  facts.ranges = {
      {.memory = 4, .offset = 1000, .length = 1000}, {.memory = 4, .offset = 1000, .length = 10},
      {.memory = 4, .offset = 1500, .length = 700},  {.memory = 4, .offset = 1600, .length = 100},
      {.memory = 4, .offset = 4000, .length = 100},
  };
  std::vector<RemoteRange> covered = facts.ranges;
  covered.push_back({.memory = 4, .offset = 1900, .length = 100});  // a piece of the first, behind others
  facts.ranges.push_back({.memory = 3, .offset = 1200, .length = 900});
  table.add(2, reader, facts);
  for (const RemoteRange& range : covered) {
    EXPECT_TRUE(table.pin(reader, 2, range).ok()) << range.offset;
  }
  EXPECT_EQ(refused(2, reader, {.memory = 4, .offset = 2199, .length = 2}), ErrorKind::protocol);
  EXPECT_EQ(refused(2, reader, {.memory = 4, .offset = 999, .length = 2}), ErrorKind::protocol);
  EXPECT_EQ(refused(2, reader, {.memory = 4, .offset = 3999, .length = 1}), ErrorKind::protocol);
}

TEST_F(LeaseTableTest, ALeaseBelongsToItsReader) {
  const RemoteRange range{.memory = 4, .offset = 256, .length = 10};
  EXPECT_EQ(refused(1, node_named(2), range), ErrorKind::lease_lost);
  EXPECT_EQ(refused(2, reader, range), ErrorKind::lease_lost);
  table.remove(1);
  EXPECT_EQ(refused(1, reader, range), ErrorKind::lease_lost);
  table.remove(1);  // harmless
}

TEST_F(LeaseTableTest, APinKeepsTheBodyAfterTheLeaseAndThePublication) {
  Result<SourcePin> pin = table.pin(reader, 1, {.memory = 4, .offset = 256, .length = 10});
  ASSERT_TRUE(pin.ok());
  facts.body->reason = EndReason::expired;
  facts.body.reset();
  table.remove(1);
  EXPECT_FALSE(released.has_value());
  pin = Error(ErrorKind::closed, "dropped");
  EXPECT_EQ(released, EndReason::expired);
}

TEST_F(LeaseTableTest, InlinePayloadsHaveNothingToPin) {
  facts.is_inline = true;
  facts.ranges.clear();
  table.add(2, reader, facts);
  EXPECT_EQ(refused(2, reader, {.memory = 4, .offset = 256, .length = 1}), ErrorKind::lease_lost);
}

}  // namespace
}  // namespace stagewire::test
