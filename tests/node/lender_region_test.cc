// A Lender whose payloads lie in memory that its owner takes back.
#include <map>

#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

class LenderOfRegions : public LenderTest {
 protected:
  // Two payloads in memory 20, and one in memory 21.
  void SetUp() override {
    for (std::uint64_t i = 1; i <= 3; ++i) {
      PublicationFacts facts;
      facts.key.key = "r" + std::to_string(i);
      facts.generation = i;
      facts.size = kSize;
      facts.ranges = {{.memory = i == 3 ? 21U : 20U, .offset = 0, .length = kSize}};
      facts.in_regions = true;
      facts.ttl = facts.max_lifetime = std::chrono::minutes(10);
      facts.body = std::make_shared<SourceBody>();
      facts.body->released = [told = let_go_, i](EndReason reason) { (*told)[i] = reason; };
      lender.publish(std::move(facts), now);
    }
  }
  void claim_key(const NodeId& reader, std::uint64_t number, const std::string& key,
                 std::uint64_t generation = 0, std::uint8_t flags = 0) {
    wire::Claim claim = claim_of(number, generation);
    claim.key = key;
    claim.flags = flags;
    lender.on_claim(reader, claim, now);
  }
  using LetGo = std::map<std::uint64_t, EndReason>;
  const LetGo& let_go() const { return *let_go_; }

 private:
  // The lender outlives this part of the fixture, and lets go of the rest then.
  std::shared_ptr<LetGo> let_go_ = std::make_shared<LetGo>();
};

TEST_F(LenderOfRegions, RevokingAMemoryEndsItsLeasesAndLeavesOthers) {
  claim_key(a, 1, "r1");
  const auto lost = sent_to<wire::Grant>(a);
  claim_key(a, 2, "r3");
  const auto kept = sent_to<wire::Grant>(a);
  auto bodies = lender.revoke_memory(20, EndReason::cancelled, now);
  EXPECT_EQ(bodies.size(), 2U);
  EXPECT_EQ(output.leases, std::set<LeaseId>{kept.lease});
  EXPECT_EQ(lender.publications(), 1U);
  EXPECT_TRUE(let_go().empty()) << "whoever fences the memory still holds it";
  bodies.clear();
  EXPECT_EQ(let_go(), (LetGo{{1, EndReason::cancelled}, {2, EndReason::cancelled}}));
  expect_silence();
  // The reader that was in the middle of it: its claim again after a reconnect, and the end that it reports.
  claim_key(a, 1, "r1");
  expect_refused(a, 1, ErrorKind::lease_lost);
  consume(a, lost);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  claim_key(b, 1, "r2", 2);
  expect_refused(b, 1, ErrorKind::cancelled);
  consume(a, kept);
  EXPECT_EQ(let_go().at(3), EndReason::consumed);
}

TEST_F(LenderOfRegions, TheyAreNoViewsAndSayWhatTheyAre) {
  claim_key(a, 1, "r1", 0, wire::Claim::kWantView);
  EXPECT_EQ(sent_to<wire::Grant>(a).flags, wire::Grant::kRegion);
  ASSERT_EQ(lender.lease_list().size(), 1U);
  EXPECT_FALSE(lender.lease_list().front().view);
}

TEST_F(LenderOfRegions, AGenerationThatWasBuriedUnbornIsToldWhy) {
  lender.bury(9, EndReason::cancelled);
  claim_key(a, 1, "r9", 9);
  expect_refused(a, 1, ErrorKind::cancelled);
}

TEST_F(LenderOfRegions, RevokingWhatNothingLiesInDoesNothing) {
  EXPECT_TRUE(lender.revoke_memory(22, EndReason::cancelled, now).empty());
  EXPECT_EQ(lender.publications(), 3U);
  expect_silence();
}

}  // namespace
}  // namespace stagewire::test
