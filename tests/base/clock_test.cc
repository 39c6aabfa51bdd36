// Clocks and deadlines.
#include "base/clock.h"

#include <gtest/gtest.h>

#include <stagewire/base/deadline.h>

namespace stagewire {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ClockTest, BoottimeNeverGoesBack) {
  const BoottimeClock clock;
  const Clock& base = clock;
  nanoseconds last = boottime_now();
  EXPECT_GT(last.count(), 0);
  for (int i = 0; i < 1000; ++i) {
    const nanoseconds now = base.now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, AManualClockMovesWhenTold) {
  ManualClock clock(seconds(5));
  EXPECT_EQ(clock.now(), seconds(5));
  EXPECT_EQ(clock.now(), seconds(5));
  clock.advance(nanoseconds(1));
  EXPECT_EQ(clock.now(), seconds(5) + nanoseconds(1));
  EXPECT_EQ(ManualClock().now(), nanoseconds(0));
}

TEST(DeadlineTest, PassesAndClamps) {
  EXPECT_TRUE(Deadline::now().passed());
  EXPECT_TRUE(Deadline::in(-hours(1'000'000)).passed());
  EXPECT_EQ(Deadline::in(-seconds(1)).left(), nanoseconds(0));
  EXPECT_FALSE(Deadline::in(hours(1)).passed());
  EXPECT_GT(Deadline::in(hours(1)).left(), seconds(1800));
  // Far ones are clamped: no overflow into the past.
  const Deadline far = Deadline::in(nanoseconds::max());
  EXPECT_FALSE(far.passed());
  EXPECT_LE(far.left(), nanoseconds(Deadline::kLongest));
}

TEST(DeadlineTest, EarlierAndOrder) {
  const Deadline near = Deadline::in(seconds(1));
  const Deadline far(near.at() + seconds(1));
  EXPECT_EQ(near.earlier(far), near);
  EXPECT_EQ(far.earlier(near), near);
  EXPECT_TRUE(near < far);
  EXPECT_FALSE(far < near);
}

}  // namespace
}  // namespace stagewire
