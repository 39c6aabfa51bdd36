// The publication's transition function: every event in every state.
#include "node/publication.h"

#include <gtest/gtest.h>
#include <memory>
#include <optional>

namespace stagewire {
namespace {

using std::chrono::seconds;

class PublicationTest : public ::testing::Test {
 protected:
  Publication make(std::uint32_t readers) {
    PublicationFacts facts;
    facts.key.key = "k";
    facts.generation = 1;
    facts.readers = readers;
    facts.ttl = seconds(10);
    facts.max_lifetime = seconds(100);
    facts.body = std::make_shared<SourceBody>();
    facts.body->released = [this](EndReason reason) { released = reason; };
    return Publication(std::move(facts), start);
  }
  static bool claim(Publication& publication, LeaseId lease, const std::string& reader, Time at) {
    return publication.apply(PublicationEvent::claim(lease, reader), at);
  }
  static bool end(Publication& publication, LeaseId lease, bool consumed, Time at) {
    return publication.apply(PublicationEvent::end_of_lease(lease, consumed), at);
  }

  const Time start = seconds(1000);
  std::optional<EndReason> released;
};

TEST_F(PublicationTest, OneReader) {
  Publication publication = make(1);
  EXPECT_EQ(publication.state(), PublicationState::ready);
  EXPECT_EQ(publication.owed(), 1U);
  EXPECT_TRUE(claim(publication, 1, "a", start));
  EXPECT_EQ(publication.state(), PublicationState::leased);
  EXPECT_EQ(publication.owed(), 0U);
  EXPECT_TRUE(publication.leased_to("a"));
  EXPECT_FALSE(publication.grantable_to("b"));
  EXPECT_TRUE(end(publication, 1, true, start));
  EXPECT_EQ(publication.state(), PublicationState::freed);
  EXPECT_EQ(publication.reason(), EndReason::consumed);
  EXPECT_TRUE(publication.consumed_by("a"));
  EXPECT_EQ(released, EndReason::consumed);
}

TEST_F(PublicationTest, ALostLeaseLeadsBackToReady) {
  Publication publication = make(1);
  claim(publication, 1, "a", start);
  EXPECT_TRUE(end(publication, 1, false, start));
  EXPECT_EQ(publication.state(), PublicationState::ready);
  EXPECT_EQ(publication.owed(), 1U);
  EXPECT_TRUE(publication.grantable_to("a"));
  EXPECT_FALSE(released.has_value());
}

TEST_F(PublicationTest, ImpossibleEventsChangeNothing) {
  Publication publication = make(2);
  EXPECT_FALSE(end(publication, 9, true, start)) << "a lease that was never given";
  EXPECT_TRUE(claim(publication, 1, "a", start));
  EXPECT_FALSE(claim(publication, 1, "b", start)) << "the number of a lease that lives";
  EXPECT_FALSE(claim(publication, 2, "a", start)) << "the same reader twice";
  EXPECT_TRUE(claim(publication, 2, "b", start));
  EXPECT_FALSE(claim(publication, 3, "c", start)) << "more than is owed";
  EXPECT_EQ(publication.leases(), 2U);
  EXPECT_TRUE(end(publication, 1, true, start));
  EXPECT_FALSE(end(publication, 1, true, start)) << "the same end twice";
  EXPECT_EQ(publication.state(), PublicationState::leased);
  EXPECT_FALSE(publication.grantable_to("a")) << "it has consumed this generation";
  EXPECT_EQ(publication.owed(), 0U);
}

TEST_F(PublicationTest, WithdrawnWhileLeasedIsFreedWithTheLastLease) {
  for (const bool consumed : {true, false}) {
    released.reset();
    Publication publication = make(2);
    claim(publication, 1, "a", start);
    claim(publication, 2, "b", start);
    EXPECT_TRUE(publication.apply(PublicationEvent::withdraw(EndReason::replaced), start));
    EXPECT_EQ(publication.state(), PublicationState::withdrawn);
    EXPECT_FALSE(publication.grantable_to("c"));
    EXPECT_FALSE(publication.expires_at().has_value());
    EXPECT_FALSE(publication.apply(PublicationEvent::withdraw(EndReason::expired), start));
    EXPECT_TRUE(end(publication, 1, consumed, start));
    EXPECT_EQ(publication.state(), PublicationState::withdrawn);
    EXPECT_FALSE(released.has_value());
    EXPECT_TRUE(end(publication, 2, consumed, start));
    EXPECT_EQ(publication.state(), PublicationState::freed);
    EXPECT_EQ(released, EndReason::replaced) << "the first reason stands";
  }
}

TEST_F(PublicationTest, NothingHappensToWhatIsFreed) {
  Publication publication = make(1);
  EXPECT_TRUE(publication.apply(PublicationEvent::withdraw(EndReason::cancelled), start));
  EXPECT_EQ(publication.state(), PublicationState::freed);
  EXPECT_FALSE(claim(publication, 1, "a", start));
  EXPECT_FALSE(publication.apply(PublicationEvent::withdraw(EndReason::expired), start));
  EXPECT_EQ(publication.reason(), EndReason::cancelled);
  EXPECT_EQ(released, EndReason::cancelled);
}

TEST_F(PublicationTest, TheBudgetRunsInReadyAlone) {
  Publication publication = make(2);
  EXPECT_EQ(publication.expires_at(), start + seconds(10));
  claim(publication, 1, "a", start + seconds(4));
  EXPECT_EQ(publication.expires_at(), start + seconds(100)) << "max_lifetime alone";
  claim(publication, 2, "b", start + seconds(30));
  end(publication, 1, true, start + seconds(40));
  EXPECT_EQ(publication.expires_at(), start + seconds(100));
  end(publication, 2, false, start + seconds(50));
  EXPECT_EQ(publication.expires_at(), start + seconds(56)) << "6 of 10 seconds were left";
  claim(publication, 3, "b", start + seconds(52));
  end(publication, 3, false, start + seconds(97));
  EXPECT_EQ(publication.expires_at(), start + seconds(100)) << "whichever comes first";
}

TEST_F(PublicationTest, ABudgetThatIsUsedUpIsOverAtOnceWhenTheLeaseIsLost) {
  Publication publication = make(1);
  claim(publication, 1, "a", start + seconds(12));  // the timer had not run yet
  end(publication, 1, false, start + seconds(20));
  ASSERT_TRUE(publication.expires_at().has_value());
  EXPECT_LE(*publication.expires_at(), start + seconds(20));
}

TEST_F(PublicationTest, EveryStateAndReasonHasAName) {
  for (const auto state : {PublicationState::ready, PublicationState::leased, PublicationState::consumed,
                           PublicationState::withdrawn, PublicationState::freed})
    EXPECT_NE(to_string(state), "unknown");
  for (const auto reason : {EndReason::consumed, EndReason::cancelled, EndReason::replaced,
                            EndReason::expired, EndReason::closed})
    EXPECT_NE(to_string(reason), "unknown");
}

}  // namespace
}  // namespace stagewire
