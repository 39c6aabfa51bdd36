// The two lease clocks on a virtual clock: whatever the delays, the reader stops believing in a lease before
// the lender reuses its memory.
#include "session/lease_clock.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace stagewire {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr seconds kPeriod{10};

TEST(ReaderLeaseClock, CountsFromTheSendTimeOfTheNewestAcknowledgedSign) {
  ReaderLeaseClock clock;
  clock.set_period(kPeriod);
  EXPECT_FALSE(clock.holds(1, seconds(100))) << "nothing was acknowledged yet";
  EXPECT_TRUE(clock.on_acknowledged(seconds(100), 1));
  EXPECT_TRUE(clock.holds(1, seconds(100)));
  EXPECT_TRUE(clock.holds(1, seconds(108) - nanoseconds(1)));
  EXPECT_FALSE(clock.holds(1, seconds(108))) << "0.8 of the lender's period";
  EXPECT_FALSE(clock.on_acknowledged(seconds(105), 1));
  EXPECT_TRUE(clock.holds(1, seconds(112)));
  EXPECT_FALSE(clock.holds(1, seconds(113)));
}

TEST(ReaderLeaseClock, OlderSignsThatAreAcknowledgedLateChangeNothing) {
  ReaderLeaseClock clock;
  clock.set_period(kPeriod);
  clock.on_acknowledged(seconds(105), 1);
  EXPECT_FALSE(clock.on_acknowledged(seconds(101), 1));
  EXPECT_EQ(clock.valid_until(), seconds(113));
}

TEST(ReaderLeaseClock, ANewEpochEndsAllOlderLeases) {
  ReaderLeaseClock clock;
  clock.set_period(kPeriod);
  clock.on_acknowledged(seconds(100), 1);
  EXPECT_TRUE(clock.on_acknowledged(seconds(103), 2));
  EXPECT_FALSE(clock.holds(1, seconds(103))) << "a lease of the old epoch";
  EXPECT_TRUE(clock.holds(2, seconds(103)));
  EXPECT_FALSE(clock.holds(3, seconds(103))) << "an epoch nobody acknowledged";
}

TEST(ReaderLeaseClock, TheNewEpochDoesNotInheritTimeFromTheOldOne) {
  ReaderLeaseClock clock;
  clock.set_period(kPeriod);
  clock.on_acknowledged(seconds(105), 1);
  clock.on_acknowledged(seconds(101), 2);  // an older sign, acknowledged after the epoch was raised
  EXPECT_EQ(clock.valid_until(), seconds(109));
}

TEST(ReaderLeaseClock, AcknowledgementsOfOldEpochsAreIgnored) {
  ReaderLeaseClock clock;
  clock.set_period(kPeriod);
  clock.on_acknowledged(seconds(100), 2);
  EXPECT_FALSE(clock.on_acknowledged(seconds(107), 1));
  EXPECT_EQ(clock.epoch(), 2U);
  EXPECT_EQ(clock.valid_until(), seconds(108));
}

TEST(LenderLeaseClock, ExpiresAfterAWholePeriodOfSilence) {
  LenderLeaseClock clock;
  clock.on_heard(seconds(100));
  EXPECT_FALSE(clock.expired(seconds(110) - nanoseconds(1), kPeriod));
  EXPECT_TRUE(clock.expired(seconds(110), kPeriod));
  clock.on_heard(seconds(110));
  EXPECT_FALSE(clock.expired(seconds(119), kPeriod));
}

TEST(LenderLeaseClock, EpochsStartAboveTheReadersAndOnlyRise) {
  LenderLeaseClock lender;
  ReaderLeaseClock reader;
  EXPECT_GT(lender.epoch(), reader.epoch());
  lender.raise_epoch(lender.epoch() + 1);
  EXPECT_EQ(lender.epoch(), 2U);
  EXPECT_EQ(LenderLeaseClock(9).epoch(), 9U) << "a reader that was forgotten and comes back";
}

// A heartbeat that the lender acknowledges only after it has expired the leases: the acknowledgement carries
// the raised epoch, so it revives nothing.
TEST(LeaseClocks, AHeartbeatAcknowledgedAfterTheExpiryRevivesNothing) {
  LenderLeaseClock lender;
  ReaderLeaseClock reader;
  reader.set_period(kPeriod);
  lender.on_heard(seconds(100));
  reader.on_acknowledged(seconds(100), lender.epoch());
  const std::uint64_t lease_epoch = lender.epoch();
  ASSERT_TRUE(reader.holds(lease_epoch, seconds(101)));

  const nanoseconds sent = seconds(107);  // travels for four seconds
  ASSERT_TRUE(lender.expired(seconds(110), kPeriod));
  lender.raise_epoch(lender.epoch() + 1);
  lender.on_heard(seconds(111));
  EXPECT_TRUE(reader.on_acknowledged(sent, lender.epoch()));
  EXPECT_FALSE(reader.holds(lease_epoch, seconds(111)));
  EXPECT_TRUE(reader.holds(lender.epoch(), seconds(111))) << "new leases are good";
}

// Random delays and losses in both directions, clocks that run up to 10 % apart: never does the reader
// believe in a lease at a moment at which the lender has ended it.
TEST(LeaseClocks, TheReaderNeverOutlivesTheLender) {
  std::mt19937_64 random(11);
  const auto up_to = [&random](std::int64_t limit) {
    return milliseconds(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit)));
  };
  int lives = 0;
  for (int run = 0; run < 2000; ++run) {
    const double speed = 0.91 + static_cast<double>(random() % 180) / 1000.0;  // of the reader's clock
    LenderLeaseClock lender;
    ReaderLeaseClock reader;
    reader.set_period(kPeriod);
    struct Beat {
      milliseconds sent;
      milliseconds arrives;
      milliseconds acknowledged;
    };
    std::vector<Beat> beats;
    milliseconds at(0);
    for (int i = 0; i < 30; ++i) {
      at += milliseconds(1000) + up_to(500);
      if (random() % 3 == 0) continue;  // lost
      const milliseconds arrives = at + up_to(6000);
      beats.push_back({.sent = at, .arrives = arrives, .acknowledged = arrives + up_to(6000)});
    }
    const auto reader_time = [speed](milliseconds real) {
      return std::chrono::duration_cast<nanoseconds>(
          std::chrono::duration<double>(std::chrono::duration<double>(real).count() * speed));
    };
    const std::uint64_t lease_epoch = lender.epoch();
    struct Acknowledgement {
      milliseconds when;
      milliseconds sent;
      std::uint64_t epoch;
    };
    std::vector<Acknowledgement> acknowledgements;
    lender.on_heard(milliseconds(0));
    bool expired = false;
    for (milliseconds now(0); now < seconds(60); now += milliseconds(50)) {
      for (const Beat& beat : beats) {
        if (beat.arrives > now - milliseconds(50) && beat.arrives <= now) lender.on_heard(now);
      }
      if (!expired && lender.expired(now, kPeriod)) {
        expired = true;
        lender.raise_epoch(lender.epoch() + 1);
      }
      for (const Beat& beat : beats) {
        // The acknowledgement carries the epoch of the moment at which it was written.
        if (beat.arrives > now - milliseconds(50) && beat.arrives <= now)
          acknowledgements.push_back({.when = beat.acknowledged, .sent = beat.sent, .epoch = lender.epoch()});
      }
      for (const Acknowledgement& ack : acknowledgements) {
        if (ack.when <= now) reader.on_acknowledged(reader_time(ack.sent), ack.epoch);
      }
      const bool believes = reader.holds(lease_epoch, reader_time(now));
      lives += believes ? 1 : 0;
      ASSERT_FALSE(believes && expired) << "run " << run << " at " << now.count() << " ms";
    }
  }
  EXPECT_GT(lives, 0) << "the test must also see leases that hold";
}

}  // namespace
}  // namespace stagewire
