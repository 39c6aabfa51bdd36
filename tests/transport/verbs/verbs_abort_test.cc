// The promise of an abort over verbs: once it has settled, not one byte of the destination changes, whatever
// the adapter still does; and no other read fails for it. The adapters are fakes that the test stops, delays
// and lets write late.
#include <gtest/gtest.h>

#include "verbs_fixture.h"

namespace stagewire::testing_support {
namespace {

using VerbsAbort = VerbsTest;

TEST_F(VerbsAbort, AReadWhoseWindowEndsByItselfBreaksNothing) {
  setup_.reader.abort_fence = std::chrono::minutes(10);
  setup_.reader.window = 1 << 20;
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(16));
  const auto settled = harness_->abort(id);
  EXPECT_FALSE(settled->happened());
  fake_->release();
  settled->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
  EXPECT_EQ(metric("stagewire_verbs_queue_resets_total"), 0U);
  EXPECT_EQ(metric("stagewire_verbs_aborts_total"), 1U);
}

TEST_F(VerbsAbort, WhatWasNotPostedIsNeverPosted) {
  setup_.reader.abort_fence = std::chrono::minutes(10);
  setup_.reader.window = 256 << 10;
  start();
  const std::size_t before = fake_->posted();
  fake_->hold();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(4));  // the window
  const auto settled = harness_->abort(id);
  fake_->release();
  settled->wait();
  EXPECT_EQ(fake_->posted() - before, 4U);
}

TEST_F(VerbsAbort, AStuckReadIsFenced) {
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  ASSERT_TRUE(fake_->step(10));  // in the middle of it
  harness_->abort(id)->wait();   // nothing is carried out meanwhile
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
  EXPECT_EQ(outcome->times(), 1);
  poison();
  fake_->release();
  EXPECT_EQ(kind_name(read_own(100'000)), "ok");  // over fresh queue pairs
  EXPECT_TRUE(poisoned());
  EXPECT_GE(metric("stagewire_verbs_queue_resets_total"), 1U);
}

TEST_F(VerbsAbort, DoesNotSettleBeforeTheQueueHasDrained) {
  start();
  fake_->hold();
  fake_->hold_flushes();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  const auto settled = harness_->abort(id);
  ASSERT_TRUE(fake_->wait_for_held_flush());
  run_on(harness_->loop(), [] {});
  EXPECT_FALSE(settled->happened());
  EXPECT_FALSE(outcome->happened());
  fake_->release_flushes();  // the adapter writes until the very end
  settled->wait();
  EXPECT_GT(fake_->late_writes(), 0U);
  poison();
  fake_->release();
  EXPECT_EQ(kind_name(read_own(100'000)), "ok");
  EXPECT_TRUE(poisoned());
}

TEST_F(VerbsAbort, LateCompletionsChangeNothing) {
  start();
  fake_->hold_completions();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(1 << 20), outcome);
  const auto settled = harness_->abort(id);
  EXPECT_FALSE(settled->happened());
  fake_->release_completions();
  settled->wait();
  poison();
  EXPECT_EQ(kind_name(read_own(100'000)), "ok");
  EXPECT_TRUE(poisoned());
}

TEST_F(VerbsAbort, OtherReadsOnTheQueuePairsGoOn) {
  setup_.reader.queue_pairs = 1;
  start();
  fake_->hold();
  const Outcome stopped = make_outcome();
  const Outcome other = make_outcome();
  const ReadId id = harness_->read(request(1 << 20, 0), stopped);
  harness_->read(request(1 << 20, 4 << 20), other);
  ASSERT_TRUE(fake_->wait_for_requests(32));
  harness_->abort(id)->wait();
  EXPECT_FALSE(other->happened());
  fake_->release();
  EXPECT_EQ(kind_name(other->wait()), "ok");
  EXPECT_TRUE(same(1 << 20, 4 << 20));
  EXPECT_EQ(metric("stagewire_verbs_requests_repeated_total"), 16U);
}

TEST_F(VerbsAbort, OtherReadsAreWholeAlthoughBytesWereWrittenLate) {
  setup_.reader.queue_pairs = 1;
  start();
  fake_->hold();
  fake_->hold_flushes();
  const Outcome stopped = make_outcome();
  const Outcome other = make_outcome();
  const ReadId id = harness_->read(request(1 << 20, 0), stopped);
  harness_->read(request(1 << 20, 4 << 20), other);
  ASSERT_TRUE(fake_->wait_for_requests(32));
  const auto settled = harness_->abort(id);
  ASSERT_TRUE(fake_->wait_for_held_flush());
  fake_->release();
  fake_->release_flushes();
  settled->wait();
  EXPECT_EQ(kind_name(other->wait()), "ok");
  EXPECT_TRUE(same(1 << 20, 4 << 20));
}

TEST_F(VerbsAbort, AQueuePairThatDoesNotDrainIsDestroyed) {
  setup_.reader.drain_timeout = std::chrono::milliseconds(1);
  start();
  fake_->hold();
  fake_->hold_flushes();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  harness_->abort(id)->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
  poison();
  fake_->release_flushes();
  fake_->release();
  EXPECT_EQ(kind_name(read_own(100'000)), "ok");
  EXPECT_TRUE(poisoned());
}

TEST_F(VerbsAbort, SettlesOnceDestroyingHasSucceeded) {
  setup_.reader.drain_timeout = std::chrono::milliseconds(1);
  start();
  fake_->hold();
  fake_->hold_flushes();
  fake_->fail_destroy(EIO, 4);
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  const auto settled = harness_->abort(id);
  ASSERT_TRUE(fake_->wait_for_failed_destroys());
  settled->wait();  // by a later try
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
}

TEST_F(VerbsAbort, DoesNotSettleWhileTheDriverHangs) {
  setup_.reader.drain_timeout = std::chrono::milliseconds(1);
  setup_.reader.helper_timeout = std::chrono::milliseconds(1);
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  fake_->shut_modify(IBV_QPS_ERR);
  const auto settled = harness_->abort(id);
  ASSERT_TRUE(fake_->wait_at_gate());
  run_on(harness_->loop(), [] {});
  EXPECT_FALSE(settled->happened());
  fake_->open_gates();
  settled->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
}

TEST_F(VerbsAbort, AReadWhoseDestinationIsBeingRegisteredSettlesAtOnce) {
  start();
  fake_->shut_registrations();
  std::vector<std::byte> to(100'000);
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read({kLease, {{kMemory, 0, to.size()}}, {{to.data(), to.size()}}}, outcome);
  ASSERT_TRUE(fake_->wait_at_gate());
  harness_->abort(id)->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
  const std::size_t before = fake_->posted();
  fake_->open_gates();
  EXPECT_EQ(kind_name(harness_->read_now(request(64 << 10))), "ok");
  EXPECT_EQ(fake_->posted() - before, 1U);  // that one's
}

TEST_F(VerbsAbort, AReadThatWaitsForTheConnectionSettlesAtOnce) {
  fake_->shut_modify(IBV_QPS_RTR);
  make();
  ASSERT_TRUE(fake_->wait_at_gate());
  std::byte byte{};
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read({kLease, {{kMemory, 0, 1}}, {{&byte, 1}}}, outcome);
  EXPECT_FALSE(outcome->happened());
  harness_->abort(id)->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
}

TEST_F(VerbsAbort, CloseFencesWhatIsStuck) {
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  harness_->close_reader()->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "peer_lost");
  poison();
  fake_->release();
  harness_->shut_down();
  EXPECT_TRUE(poisoned());
}

}  // namespace
}  // namespace stagewire::testing_support
