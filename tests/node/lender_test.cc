// What the Lender answers to claims, and how leases end.
#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(LenderTest, GrantsWhatIsPublished) {
  const std::uint64_t generation = publish();
  claim(a, 1, generation);
  const auto grant = sent_to<wire::Grant>(a);
  EXPECT_EQ(grant.claim, 1U);
  EXPECT_EQ(grant.generation, generation);
  EXPECT_EQ(grant.header, "header of 1");
  EXPECT_EQ(grant.body_size, kSize);
  EXPECT_EQ(grant.lease_epoch, 7U);
  ASSERT_EQ(grant.ranges.size(), 1U);
  EXPECT_EQ(grant.ranges[0].length, kSize);
  EXPECT_EQ(grant.flags, 0);
  EXPECT_EQ(output.leases, std::set<LeaseId>{grant.lease});
  EXPECT_EQ(lender.leases(), 1U);
  EXPECT_TRUE(lender.has_leases(a));
  EXPECT_FALSE(lender.has_leases(b));

  consume(a, grant);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  EXPECT_TRUE(output.leases.empty());
  EXPECT_EQ(lender.publications(), 0U);
  expect_released(generation, EndReason::consumed);
}

TEST_F(LenderTest, InlineBodiesTravelInTheGrantAndStayOwedUntilConsumed) {
  publish({.inline_bytes = "small"});
  claim(a, 1);
  const auto grant = sent_to<wire::Grant>(a);
  EXPECT_EQ(grant.flags, wire::Grant::kInline);
  EXPECT_EQ(grant.inline_body, "small");
  EXPECT_TRUE(grant.ranges.empty());
  EXPECT_TRUE(released.empty());
  release(a, grant);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  claim(b, 1);
  EXPECT_EQ(sent_to<wire::Grant>(b).inline_body, "small");
}

TEST_F(LenderTest, ClaimBeforePublishIsAnsweredByThePublish) {
  claim(a, 1);
  expect_silence();
  EXPECT_EQ(lender.waiting(), 1U);
  publish();
  EXPECT_EQ(sent_to<wire::Grant>(a).claim, 1U);
  EXPECT_EQ(lender.waiting(), 0U);
  EXPECT_EQ(lender.next_time(), now + std::chrono::minutes(30)) << "the claim's timeout must be gone";
}

TEST_F(LenderTest, WaitingClaimsAreServedInTheirOrder) {
  claim(b, 1);
  claim(a, 1);
  claim(c, 1);
  publish({.readers = 2});
  ASSERT_EQ(output.sent.size(), 2U);
  EXPECT_EQ(output.sent[0].reader, b);
  EXPECT_EQ(output.sent[1].reader, a);
  EXPECT_EQ(lender.waiting(), 1U);
}

TEST_F(LenderTest, AClaimThatMayNotWaitIsRefusedAtOnce) {
  claim(a, 1, 0, 0);
  expect_refused(a, 1, ErrorKind::not_found);
  publish();
  claim(b, 1, 0, 0);
  sent_to<wire::Grant>(b);
  claim(a, 2, 0, 0);
  expect_refused(a, 2, ErrorKind::not_found);
  EXPECT_EQ(lender.waiting(), 0U);
}

TEST_F(LenderTest, AWaitingClaimEndsAtItsOwnDeadline) {
  claim(a, 1, 0, 500);
  EXPECT_EQ(lender.next_time(), now + milliseconds(500));
  pass(milliseconds(499));
  expect_silence();
  pass(milliseconds(1));
  expect_refused(a, 1, ErrorKind::deadline_exceeded);
  EXPECT_EQ(lender.waiting(), 0U);
  publish();
  expect_silence();
}

TEST_F(LenderTest, WaitingClaimsAreBoundedPerReader) {
  for (std::uint64_t i = 1; i <= 3; ++i) claim(a, i);
  claim(a, 4);
  expect_refused(a, 4, ErrorKind::busy);
  claim(b, 1);
  expect_silence();
  EXPECT_EQ(lender.waiting(), 4U);
  lender.on_cancel(a, {.claim = 2}, now);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 2U);
  claim(a, 5);
  expect_silence();
}

TEST_F(LenderTest, FanOutOwesEveryReaderOnce) {
  const std::uint64_t generation = publish({.readers = 2});
  claim(a, 1);
  const auto first = sent_to<wire::Grant>(a);
  claim(a, 2);
  expect_silence();  // the same reader has it already
  claim(b, 1);
  const auto second = sent_to<wire::Grant>(b);
  EXPECT_NE(first.lease, second.lease);
  claim(c, 1, generation);
  expect_silence();  // nothing is owed to a third while both are reading
  consume(a, first);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  expect_silence();
  release(b, second);  // gives up: the read is owed again
  EXPECT_EQ(sent_to<wire::Settled>(b).claim, 1U);
  const auto third = sent_to<wire::Grant>(c);
  EXPECT_EQ(third.generation, generation);
  consume(c, third);
  sent_to<wire::Settled>(c);
  expect_released(generation, EndReason::consumed);
  EXPECT_EQ(lender.publications(), 0U);
  EXPECT_EQ(lender.waiting(), 1U);  // a's second claim waits for the next generation
  publish();
  EXPECT_EQ(sent_to<wire::Grant>(a).claim, 2U);
}

TEST_F(LenderTest, ReadersOfOneNodeAreToldApartByName) {
  publish({.readers = 2});
  wire::Claim first = claim_of(1);
  first.reader = "rank 0";
  wire::Claim again = claim_of(2);
  again.reader = "rank 0";
  wire::Claim second = claim_of(3);
  second.reader = "rank 1";
  lender.on_claim(a, first, now);
  sent_to<wire::Grant>(a);
  lender.on_claim(a, again, now);
  expect_silence();
  lender.on_claim(a, second, now);
  EXPECT_EQ(sent_to<wire::Grant>(a).claim, 3U);
}

TEST_F(LenderTest, TheSameNameFromTwoNodesIsOneReader) {
  publish({.readers = 2});
  wire::Claim claim = claim_of(1);
  claim.reader = "the reader";
  lender.on_claim(a, claim, now);
  const auto grant = sent_to<wire::Grant>(a);
  lender.on_claim(b, claim, now);
  expect_silence();
  consume(a, grant);
  sent_to<wire::Settled>(a);
  expect_silence();  // by key: waits for a generation that this reader has not had
  wire::Claim by_ticket = claim;
  by_ticket.claim = 2;
  by_ticket.generation = 1;
  lender.on_claim(b, by_ticket, now);
  expect_refused(b, 2, ErrorKind::consumed);
}

TEST_F(LenderTest, AFanOutSurvivesReadersThatDie) {
  const std::uint64_t generation = publish({.readers = 3});
  claim(a, 1);
  claim(b, 1);
  claim(c, 1);
  const auto grant_a = sent_to<wire::Grant>(a);
  sent_to<wire::Grant>(b);
  sent_to<wire::Grant>(c);
  lender.forget_reader(b, now);
  lender.forget_reader(c, now);
  expect_silence();
  EXPECT_EQ(lender.leases(), 1U);
  consume(a, grant_a);
  sent_to<wire::Settled>(a);
  EXPECT_TRUE(released.empty());
  const NodeId d = node_named(4);
  const NodeId e = node_named(5);
  for (const NodeId& reader : {d, e}) {
    claim(reader, 1, generation);
    consume(reader, sent_to<wire::Grant>(reader));
    sent_to<wire::Settled>(reader);
  }
  expect_released(generation, EndReason::consumed);
}

TEST_F(LenderTest, ATicketMayBeQuickerThanItsPublish) {
  claim(a, 1, 1);
  expect_silence();
  EXPECT_EQ(publish(), 1U);
  EXPECT_EQ(sent_to<wire::Grant>(a).generation, 1U);
}

// --- Claims repeated after a lost reply or a reconnect.

TEST_F(LenderTest, ARepeatedClaimGetsTheSameLease) {
  publish();
  claim(a, 1);
  const auto first = sent_to<wire::Grant>(a);
  lender.on_reader_away(a);
  claim(a, 1);
  const auto again = sent_to<wire::Grant>(a);
  EXPECT_EQ(again.lease, first.lease);
  EXPECT_EQ(again.generation, first.generation);
  EXPECT_EQ(again.ranges, first.ranges);
  EXPECT_EQ(lender.leases(), 1U);
}

TEST_F(LenderTest, ARepeatedClaimGetsTheSameLeaseEvenOfAReplacedGeneration) {
  publish();
  claim(a, 1);
  const auto first = sent_to<wire::Grant>(a);
  publish();
  claim(a, 1);
  EXPECT_EQ(sent_to<wire::Grant>(a).lease, first.lease);
}

TEST_F(LenderTest, ARepeatedClaimThatWasConsumedGetsNoSecondPayload) {
  publish();
  claim(a, 1);
  consume(a, sent_to<wire::Grant>(a));
  sent_to<wire::Settled>(a);
  publish();  // something is there that a new claim would get
  claim(a, 1);
  expect_refused(a, 1, ErrorKind::consumed);
  EXPECT_EQ(lender.leases(), 0U);
}

TEST_F(LenderTest, ARepeatedClaimWhoseLeaseWasLostIsToldSo) {
  publish();
  claim(a, 1);
  sent_to<wire::Grant>(a);
  lender.on_reader_gone(a, now);
  claim(a, 1);
  expect_refused(a, 1, ErrorKind::lease_lost);
  claim(a, 2);  // a new claim gets the payload that is still owed
  EXPECT_EQ(sent_to<wire::Grant>(a).claim, 2U);
}

TEST_F(LenderTest, ARepeatedWaitingClaimWaitsOnce) {
  claim(a, 1);
  claim(a, 1);
  EXPECT_EQ(lender.waiting(), 1U);
  publish({.readers = 5});
  sent_to<wire::Grant>(a);
  expect_silence();
}

TEST_F(LenderTest, ClaimNumbersOfTwoReadersDoNotMeet) {
  publish({.readers = 2});
  claim(a, 1);
  const auto first = sent_to<wire::Grant>(a);
  claim(b, 1);
  EXPECT_NE(sent_to<wire::Grant>(b).lease, first.lease);
}

TEST_F(LenderTest, AForgottenReaderStartsAfresh) {
  publish({.readers = 2});
  claim(a, 1);
  consume(a, sent_to<wire::Grant>(a));
  sent_to<wire::Settled>(a);
  lender.forget_reader(a, now);
  wire::Claim other_name = claim_of(1);
  other_name.reader = "somebody else";
  lender.on_claim(a, other_name, now);
  EXPECT_EQ(sent_to<wire::Grant>(a).claim, 1U);
}

TEST_F(LenderTest, SettledClaimsAreForgottenAndOthersAreNot) {
  publish({.readers = 9});
  claim(a, 1);
  consume(a, sent_to<wire::Grant>(a));
  sent_to<wire::Settled>(a);
  wire::Claim second = claim_of(2);
  second.reader = "second";
  lender.on_claim(a, second, now);
  const auto granted = sent_to<wire::Grant>(a);
  lender.on_settled_below(a, 2);  // 1 is over, 2 is not
  claim(a, 1);
  expect_silence();  // forgotten: taken for a new one, which waits since its reader has the payload
  lender.on_cancel(a, {.claim = 1}, now);
  sent_to<wire::Settled>(a);
  lender.on_settled_below(a, 100);  // even a reader that lies loses no lease by it
  EXPECT_EQ(lender.leases(), 1U);
  lender.on_claim(a, second, now);
  EXPECT_EQ(sent_to<wire::Grant>(a).lease, granted.lease);
}

// --- The ends of leases.

TEST_F(LenderTest, OnlyTheHolderEndsALease) {
  publish();
  claim(a, 1);
  const auto grant = sent_to<wire::Grant>(a);
  consume(b, grant);
  EXPECT_EQ(sent_to<wire::Settled>(b).claim, 1U);
  release(b, grant);
  EXPECT_EQ(sent_to<wire::Settled>(b).claim, 1U);
  EXPECT_EQ(lender.leases(), 1U);
}

TEST_F(LenderTest, RepeatedLastWordsAreSettledEachTime) {
  publish();
  claim(a, 1);
  const auto grant = sent_to<wire::Grant>(a);
  consume(a, grant);
  consume(a, grant);
  release(a, grant);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  EXPECT_EQ(released.size(), 1U);
}

TEST_F(LenderTest, ConsumedAfterTheLeaseWasLostIsSettledAndChangesNothing) {
  const std::uint64_t generation = publish();
  claim(a, 1);
  const auto grant = sent_to<wire::Grant>(a);
  lender.on_reader_gone(a, now);
  consume(a, grant);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  claim(b, 1, generation);
  EXPECT_EQ(sent_to<wire::Grant>(b).generation, generation);
}

TEST_F(LenderTest, ACancelThatCrossedTheGrantEndsTheLease) {
  publish();
  claim(a, 1);
  sent_to<wire::Grant>(a);
  lender.on_cancel(a, {.claim = 1}, now);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 1U);
  EXPECT_EQ(lender.leases(), 0U);
  claim(b, 1);
  sent_to<wire::Grant>(b);
  claim(a, 1);
  expect_refused(a, 1, ErrorKind::lease_lost);
}

TEST_F(LenderTest, ACancelledWaitingClaimStaysDeadWhenItIsRepeated) {
  claim(a, 1);
  lender.on_cancel(a, {.claim = 1}, now);
  sent_to<wire::Settled>(a);
  publish();
  expect_silence();
  claim(a, 1);
  expect_refused(a, 1, ErrorKind::lease_lost);
}

TEST_F(LenderTest, ACancelOfAnUnknownClaimIsSettled) {
  lender.on_cancel(a, {.claim = 99}, now);
  EXPECT_EQ(sent_to<wire::Settled>(a).claim, 99U);
}

TEST_F(LenderTest, AReaderThatIsAwayLosesWaitingClaimsAndKeepsLeases) {
  publish({.key = "k"});
  claim(a, 1);
  sent_to<wire::Grant>(a);
  claim(a, 2);
  EXPECT_EQ(lender.waiting(), 1U);
  lender.on_reader_away(a);
  EXPECT_EQ(lender.waiting(), 0U);
  EXPECT_EQ(lender.leases(), 1U);
  claim(a, 2);  // repeated on the new session: waits again
  EXPECT_EQ(lender.waiting(), 1U);
  expect_silence();
}

TEST_F(LenderTest, ADeadReadersLeaseGoesToTheNextInTheQueue) {
  publish();
  claim(a, 1);
  sent_to<wire::Grant>(a);
  claim(b, 1);
  claim(c, 1);
  expect_silence();
  lender.forget_reader(a, now);
  EXPECT_EQ(sent_to<wire::Grant>(b).claim, 1U);
  expect_silence();
  EXPECT_FALSE(lender.has_leases(a));
}

// --- Views.

TEST_F(LenderTest, ViewsBeyondTheShareAreCopyOnly) {
  const auto want_view = [&](std::uint64_t number, const std::string& key) {
    publish({.key = key});
    wire::Claim claim = claim_of(number);
    claim.key = key;
    claim.flags = wire::Claim::kWantView;
    lender.on_claim(a, claim, now);
    return sent_to<wire::Grant>(a);
  };
  const auto first = want_view(1, "k1");
  const auto second = want_view(2, "k2");
  const auto third = want_view(3, "k3");
  EXPECT_EQ(first.flags, 0);
  EXPECT_EQ(second.flags, 0);
  EXPECT_EQ(third.flags, wire::Grant::kCopyOnly);
  wire::Claim again = claim_of(3);
  again.key = "k3";
  again.flags = wire::Claim::kWantView;
  lender.on_claim(a, again, now);
  EXPECT_EQ(sent_to<wire::Grant>(a).flags, wire::Grant::kCopyOnly) << "a repeated claim gets the same answer";
  consume(a, third);  // a copy: gives nothing back of the share
  sent_to<wire::Settled>(a);
  EXPECT_EQ(want_view(4, "k4").flags, wire::Grant::kCopyOnly);
  consume(a, first);
  sent_to<wire::Settled>(a);
  EXPECT_EQ(want_view(5, "k5").flags, 0);
}

TEST_F(LenderTest, TheShareIsPerReaderAndComesBackWithItsDeath) {
  for (std::uint64_t i = 1; i <= 2; ++i) {
    publish({.key = "a" + std::to_string(i)});
    wire::Claim claim = claim_of(i);
    claim.key = "a" + std::to_string(i);
    claim.flags = wire::Claim::kWantView;
    lender.on_claim(a, claim, now);
    EXPECT_EQ(sent_to<wire::Grant>(a).flags, 0);
  }
  publish();
  wire::Claim claim = claim_of(1);
  claim.flags = wire::Claim::kWantView;
  lender.on_claim(b, claim, now);
  EXPECT_EQ(sent_to<wire::Grant>(b).flags, 0);
  std::size_t views = 0;
  for (const LeaseInfo& lease : lender.lease_list()) views += lease.view ? 1 : 0;
  EXPECT_EQ(views, 3U);
  lender.on_reader_gone(a, now);
  publish({.key = "a3"});
  wire::Claim after = claim_of(9);
  after.key = "a3";
  after.flags = wire::Claim::kWantView;
  lender.on_claim(a, after, now);
  EXPECT_EQ(sent_to<wire::Grant>(a).flags, 0);
}

}  // namespace
}  // namespace stagewire::test
