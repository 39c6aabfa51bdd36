// How publications end: replaced, cancelled, expired, and what later claims are told about it.
#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(LenderTest, TicketsOfEndedGenerationsAreToldWhy) {
  const std::uint64_t replaced = publish();
  const std::uint64_t cancelled = publish();
  EXPECT_TRUE(lender.withdraw(key_named("k"), cancelled, EndReason::cancelled, now));
  const std::uint64_t expired = publish({.ttl = milliseconds(10)});
  pass(milliseconds(10));
  const std::uint64_t consumed = publish();
  claim(a, 1, consumed);
  consume(a, sent_to<wire::Grant>(a));
  sent_to<wire::Settled>(a);

  claim(b, 1, replaced);
  expect_refused(b, 1, ErrorKind::replaced);
  claim(b, 2, cancelled);
  expect_refused(b, 2, ErrorKind::cancelled);
  claim(b, 3, expired);
  expect_refused(b, 3, ErrorKind::expired);
  claim(b, 4, consumed);
  expect_refused(b, 4, ErrorKind::consumed);
  expect_released(replaced, EndReason::replaced);
  expect_released(cancelled, EndReason::cancelled);
  expect_released(expired, EndReason::expired);
  expect_released(consumed, EndReason::consumed);
  EXPECT_EQ(lender.publications(), 0U);
  EXPECT_EQ(lender.waiting(), 0U);
}

TEST_F(LenderTest, ClaimsThatWaitByTicketAreToldWhenTheGenerationEnds) {
  const std::uint64_t first = publish();
  claim(a, 1, first);
  const auto grant = sent_to<wire::Grant>(a);
  claim(b, 1, first);
  claim(c, 1);  // by key: whichever is or comes next
  expect_silence();
  publish();
  // b waited for the first generation, c gets the second; both in the order in which they came.
  expect_refused(b, 1, ErrorKind::replaced);
  EXPECT_EQ(sent_to<wire::Grant>(c).generation, 2U);
  EXPECT_TRUE(released.empty()) << "a still reads the first";
  consume(a, grant);
  sent_to<wire::Settled>(a);
  expect_released(first, EndReason::replaced);
}

TEST_F(LenderTest, AWaitingTicketIsToldConsumed) {
  const std::uint64_t generation = publish();
  claim(a, 1, generation);
  const auto grant = sent_to<wire::Grant>(a);
  claim(b, 1, generation);
  expect_silence();
  consume(a, grant);
  expect_refused(b, 1, ErrorKind::consumed);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
}

TEST_F(LenderTest, AWithdrawnPayloadIsInvisibleButItsMemoryStaysUntilTheLastLease) {
  const std::uint64_t generation = publish({.readers = 3});
  claim(a, 1);
  claim(b, 1);
  const auto grant_a = sent_to<wire::Grant>(a);
  const auto grant_b = sent_to<wire::Grant>(b);
  EXPECT_TRUE(lender.withdraw(key_named("k"), 0, EndReason::cancelled, now));
  EXPECT_FALSE(lender.withdraw(key_named("k"), 0, EndReason::cancelled, now));
  claim(c, 1, generation, 0);
  expect_refused(c, 1, ErrorKind::cancelled);
  claim(c, 2, 0, 0);
  expect_refused(c, 2, ErrorKind::not_found);
  consume(a, grant_a);
  sent_to<wire::Settled>(a);
  EXPECT_TRUE(released.empty());
  lender.forget_reader(b, now);
  expect_released(generation, EndReason::cancelled);
  static_cast<void>(grant_b);
}

TEST_F(LenderTest, WithdrawOfAnotherGenerationDoesNothing) {
  const std::uint64_t first = publish();
  const std::uint64_t second = publish();
  EXPECT_FALSE(lender.withdraw(key_named("k"), first, EndReason::cancelled, now));
  EXPECT_FALSE(lender.withdraw(key_named("other"), 0, EndReason::cancelled, now));
  EXPECT_TRUE(lender.withdraw(key_named("k"), second, EndReason::cancelled, now));
}

TEST_F(LenderTest, WithdrawByPrefixAndEverywhereStaysInItsNamespace) {
  const auto publish_in = [&](const std::string& space, const std::string& edge, const std::string& key) {
    PublicationFacts facts;
    facts.key = Key{.name_space = space, .from_stage = edge, .to_stage = "x", .key = key};
    facts.generation = next_generation++;
    facts.body = std::make_shared<SourceBody>();
    facts.ttl = seconds(10);
    facts.max_lifetime = seconds(10);
    lender.publish(std::move(facts), now);
  };
  publish_in("n", "0", "req-1/a");
  publish_in("n", "1", "req-1/a");
  publish_in("n", "0", "req-1/b");
  publish_in("n", "0", "req-2/a");
  publish_in("m", "0", "req-1/a");
  EXPECT_EQ(lender.withdraw_everywhere("n", "req-1/a", EndReason::cancelled, now), 2U);
  EXPECT_EQ(lender.withdraw_prefix("n", "req-1/", EndReason::cancelled, now), 1U);
  EXPECT_EQ(lender.withdraw_prefix("n", "", EndReason::cancelled, now), 1U);
  EXPECT_EQ(lender.publications(), 1U);
  lender.withdraw_all(EndReason::closed, now);
  EXPECT_EQ(lender.publications(), 0U);
}

TEST_F(LenderTest, WithdrawAllAnswersEveryWaitingTicket) {
  const std::uint64_t generation = publish();
  claim(a, 1, generation);
  sent_to<wire::Grant>(a);
  claim(b, 1, generation);
  lender.withdraw_all(EndReason::closed, now);
  expect_refused(b, 1, ErrorKind::cancelled);
}

TEST_F(LenderTest, PutsThatRaceLeaveTheNewestGeneration) {
  publish({.generation = 20});
  publish({.generation = 10});  // was put earlier, arrived later
  expect_released(10, EndReason::replaced);
  claim(a, 1, 10);
  expect_refused(a, 1, ErrorKind::replaced);
  claim(a, 2);
  EXPECT_EQ(sent_to<wire::Grant>(a).generation, 20U);
}

TEST_F(LenderTest, ATicketOfAnotherKeyFindsNothing) {
  const std::uint64_t generation = publish({.key = "other"});
  claim(a, 1, generation);
  expect_refused(a, 1, ErrorKind::not_found);
}

TEST_F(LenderTest, AGenerationThatDoesNotExistYetIsNotGrantedAnother) {
  publish();
  claim(a, 1, 77, 0);
  expect_refused(a, 1, ErrorKind::not_found);
  EXPECT_EQ(lender.leases(), 0U);
}

TEST_F(LenderTest, TheLast65536EndsAreRemembered) {
  constexpr std::uint64_t kRemembered = 65536;
  for (std::uint64_t i = 0; i < kRemembered + 2; ++i) publish();
  // Each replaced the one before: kRemembered + 1 have ended, of which the first is forgotten.
  claim(a, 1, 1);
  expect_refused(a, 1, ErrorKind::expired);
  claim(a, 2, 2);
  expect_refused(a, 2, ErrorKind::replaced);
  EXPECT_EQ(lender.publications(), 1U);
}

// --- Time.

TEST_F(LenderTest, TheTimeToLiveRestsWhileLeasedAndNeverStartsAnew) {
  const std::uint64_t generation = publish({.readers = 1, .ttl = seconds(10)});
  pass(seconds(6));
  claim(a, 1);
  const auto first = sent_to<wire::Grant>(a);
  pass(seconds(100));  // leased: the budget rests
  EXPECT_EQ(lender.publications(), 1U);
  release(a, first);
  sent_to<wire::Settled>(a);
  EXPECT_EQ(lender.next_time(), now + seconds(4)) << "4 of the 10 seconds are left";
  pass(seconds(3));
  claim(a, 2);
  const auto second = sent_to<wire::Grant>(a);
  pass(seconds(50));
  release(a, second);
  sent_to<wire::Settled>(a);
  pass(milliseconds(999));
  EXPECT_EQ(lender.publications(), 1U);
  pass(milliseconds(1));
  expect_released(generation, EndReason::expired);
}

TEST_F(LenderTest, ALeaseLostDoesNotGiveTimeBack) {
  publish({.readers = 2, .ttl = seconds(10)});
  pass(seconds(9));
  claim(a, 1);
  claim(b, 1);
  const auto grant = sent_to<wire::Grant>(a);
  sent_to<wire::Grant>(b);
  pass(seconds(5));
  release(a, grant);  // b still holds one: the budget rests on
  sent_to<wire::Settled>(a);
  pass(seconds(5));
  EXPECT_EQ(lender.publications(), 1U);
  lender.forget_reader(b, now);
  pass(seconds(1));
  EXPECT_EQ(lender.publications(), 0U);
}

TEST_F(LenderTest, TheMaximumLifetimeEndsEvenALeasedPayload) {
  const std::uint64_t generation = publish({.ttl = seconds(10), .max_lifetime = seconds(60)});
  claim(a, 1);
  const auto grant = sent_to<wire::Grant>(a);
  claim(b, 1, generation, 100'000);
  EXPECT_EQ(lender.next_time(), now + seconds(60));
  pass(seconds(60));
  expect_refused(b, 1, ErrorKind::expired);
  EXPECT_TRUE(released.empty()) << "a's read is still running";
  EXPECT_EQ(lender.leases(), 1U);
  consume(a, grant);
  sent_to<wire::Settled>(a);
  expect_released(generation, EndReason::expired);
}

TEST_F(LenderTest, TheMaximumLifetimeBeatsALongerTimeToLive) {
  const std::uint64_t generation = publish({.ttl = seconds(100), .max_lifetime = seconds(60)});
  pass(seconds(60));
  expect_released(generation, EndReason::expired);
}

TEST_F(LenderTest, NothingIsDueWhenNothingIsThere) {
  EXPECT_FALSE(lender.next_time().has_value());
  publish();
  claim(a, 1);
  consume(a, sent_to<wire::Grant>(a));
  EXPECT_FALSE(lender.next_time().has_value());
}

TEST_F(LenderTest, NextTimeIsTheEarliestOfExpiriesAndClaims) {
  publish({.key = "x", .ttl = seconds(5)});
  publish({.key = "y", .ttl = seconds(3)});
  claim(a, 1, 0, 4000);
  EXPECT_EQ(lender.next_time(), now + seconds(3));
  now += seconds(3);
  EXPECT_EQ(lender.on_time(now), now + seconds(1));
  pass(seconds(1));
  expect_refused(a, 1, ErrorKind::deadline_exceeded);
  EXPECT_EQ(lender.next_time(), now + seconds(1));
}

TEST_F(LenderTest, TheOwnerIsToldOnlyWhenTheLastPinIsGone) {
  auto body = std::make_shared<SourceBody>();
  std::optional<EndReason> told;
  body->released = [&told](EndReason reason) { told = reason; };
  PublicationFacts facts;
  facts.key.key = "k";
  facts.generation = 1;
  facts.ttl = seconds(10);
  facts.max_lifetime = seconds(10);
  facts.body = body;
  lender.publish(std::move(facts), now);
  lender.withdraw(key_named("k"), 0, EndReason::cancelled, now);
  EXPECT_FALSE(told.has_value()) << "a send still touches the memory";
  body.reset();
  EXPECT_EQ(told, EndReason::cancelled);
}

}  // namespace
}  // namespace stagewire::test
