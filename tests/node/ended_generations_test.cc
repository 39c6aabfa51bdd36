#include "node/ended_generations.h"

#include <gtest/gtest.h>

namespace stagewire {
namespace {

constexpr std::uint64_t kRemembered = EndedGenerations::kRemembered;

TEST(EndedGenerations, KnowsNothingAtFirst) {
  const EndedGenerations ended;
  EXPECT_FALSE(ended.find(0));
  EXPECT_FALSE(ended.find(1));
  EXPECT_FALSE(ended.find(UINT64_MAX));
}

TEST(EndedGenerations, RemembersTheReasonOfEach) {
  EndedGenerations ended;
  ended.add(1, EndReason::replaced);
  ended.add(2, EndReason::consumed);
  ended.add(2048, EndReason::expired);
  EXPECT_EQ(ended.find(1), EndReason::replaced);
  EXPECT_EQ(ended.find(2), EndReason::consumed);
  EXPECT_EQ(ended.find(2048), EndReason::expired);
  EXPECT_FALSE(ended.find(3)) << "not ended, though its neighbours in the block are";
}

TEST(EndedGenerations, ForgetsWhatEndedTooLongAgo) {
  EndedGenerations ended;
  ended.add(7, EndReason::consumed);
  ended.add(7 + kRemembered - 1, EndReason::consumed);
  EXPECT_EQ(ended.find(7), EndReason::consumed);
  ended.add(7 + kRemembered, EndReason::cancelled);
  EXPECT_FALSE(ended.find(7));
  EXPECT_EQ(ended.find(7 + kRemembered), EndReason::cancelled);
}

TEST(EndedGenerations, KeepsTheNewerOfTwoThatShareASlot) {
  EndedGenerations ended;
  ended.add(7 + kRemembered, EndReason::cancelled);
  ended.add(7, EndReason::expired);  // was leased for long
  EXPECT_EQ(ended.find(7 + kRemembered), EndReason::cancelled);
  EXPECT_FALSE(ended.find(7));
}

TEST(EndedGenerations, TakesTheLargestNumber) {
  EndedGenerations ended;
  ended.add(UINT64_MAX, EndReason::closed);
  EXPECT_EQ(ended.find(UINT64_MAX), EndReason::closed);
}

}  // namespace
}  // namespace stagewire
