#include "session/beat_schedule.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>

namespace stagewire {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

/// Two ends over a line with some delay, in virtual time.
struct Line {
  Line(nanoseconds first, nanoseconds second) : ends{End(first), End(second)} {}
  struct End {
    explicit End(nanoseconds period) : schedule(period) {}
    BeatSchedule schedule;
    nanoseconds due{0};
    nanoseconds newest{0};
    nanoseconds longest{0};
    int by_timer = 0;
    int with_peers = 0;
  };

  void send(End& from, End& to, nanoseconds now, nanoseconds next) {
    from.longest = std::max(from.longest, now - from.newest);
    from.newest = now;
    from.due = now + next;
    const nanoseconds arrives = now + 1ms;
    if (!to.schedule.joins_peers(arrives)) return;
    ++to.with_peers;
    send(to, from, arrives, to.schedule.sent_with_peers(arrives));
  }

  void run(nanoseconds until) {
    for (;;) {
      const std::size_t next = ends[0].due <= ends[1].due ? 0 : 1;
      if (ends[next].due > until) return;
      const nanoseconds now = ends[next].due;
      ++ends[next].by_timer;
      send(ends[next], ends[1 - next], now, ends[next].schedule.sent(now));
    }
  }

  std::array<End, 2> ends;
};

TEST(BeatSchedule, TheEndsHeartbeatsFallTogether) {
  for (const nanoseconds offset : {1ms, 100ms, 400ms, 700ms, 999ms}) {
    Line line(1s, 1s);
    line.ends[0].due = 1s;
    line.ends[1].due = 1s + offset;
    line.run(101s);
    const int timers = line.ends[0].by_timer + line.ends[1].by_timer;
    const int joined = line.ends[0].with_peers + line.ends[1].with_peers;
    EXPECT_LE(timers, 103) << "one timer a period, not two; offset " << offset.count();
    EXPECT_GE(joined, 97) << offset.count();
    for (const auto& end : line.ends) EXPECT_LE(end.longest, 1250ms) << offset.count();
  }
}

TEST(BeatSchedule, AFastPeerDoesNotMakeASlowEndFaster) {
  Line line(1s, 100ms);
  line.ends[0].due = 1s;
  line.ends[1].due = 100ms;
  line.run(100s);
  EXPECT_LE(line.ends[0].by_timer + line.ends[0].with_peers, 134);
  EXPECT_GE(line.ends[0].by_timer + line.ends[0].with_peers, 99);
  EXPECT_GE(line.ends[1].by_timer + line.ends[1].with_peers, 990);
  EXPECT_LE(line.ends[0].longest, 1250ms);
}

}  // namespace
}  // namespace stagewire
