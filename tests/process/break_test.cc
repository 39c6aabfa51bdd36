// Sessions that break, time that runs out and processes that close in the middle of things.
#include <string>
#include <thread>
#include <vector>

#include "process/support/progress.h"
#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Break : public TwoNodes {
 protected:
  const Pattern large{.seed = 77, .size = large_size(200 * kMegabyte), .parts = 3};
  const Pattern small{.seed = 78, .size = 200'000, .parts = 2};
};
INSTANTIATE_TEST_SUITE_P(Routes, Break, kMainRoutes, route_name);

TEST_P(Break, AWaitingClaimIsRepeated) {
  start_both();
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  EXPECT_GT(break_session_sockets(), 0U);
  peer->expect_ok(put_command("later", small));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(waiting.take(), small);
  expect_peer_idle(*peer);
}

TEST_P(Break, ATicketsClaimIsRepeated) {
  start_both();
  for (int round = 0; round < 10; ++round) {
    const Source source = of_ticket(peer->expect_ok(put_command("k", small)));
    GetHandle running = node->get_async(source, by(seconds(50)));
    if (round % 2 == 0) {
      break_session_sockets();
    } else {
      peer->expect_ok(Line("break"));
    }
    ASSERT_TRUE(running.wait(Deadline::in(kHangGuard)).ok());
    expect_whole(running.take(), small);
  }
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Break, AReadGoesOnOrFailsButIsNeverWrong) {
  start_both();
  for (int round = 0; round < 3; ++round) {
    peer->expect_ok(put_command("large", large));
    auto destination = std::make_shared<std::vector<std::byte>>(large.size + 4096);
    GetOptions how = by(seconds(50), Placement::into);
    how.into = {DestinationRange{.data = destination->data(), .size = destination->size()}};
    how.into_hold = destination;
    GetHandle running = node->get_async(from_peer("large"), std::move(how));
    EXPECT_TRUE(eventually([&] { return has_begun(destination->data(), destination->size()); }));
    break_session_sockets();
    ASSERT_TRUE(running.wait(Deadline::in(kHangGuard)).ok());
    expect_whole(running.take(), large);
  }
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Break, ConsumedIsToldEvenIfTheSessionBreaksAtOnce) {
  start_both();
  for (int round = 0; round < 10; ++round) {
    const Pattern pattern{.seed = 5, .size = round % 2 == 0 ? 100U : 100'000U, .parts = 1};
    peer->expect_ok(put_command("k", pattern));
    const Result<Got> got = node->get(from_peer("k"), by(seconds(50)));
    break_session_sockets();
    expect_whole(got, pattern);
  }
  expect_peer_idle(*peer);
}

TEST_P(Break, TheSendersCloseEndsWhatWaits) {
  start_both();
  const Source ticket = of_ticket(peer->expect_ok(put_command("k", small)));
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(2)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  peer->expect_ok(Line("destroy"));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_kind(waiting.take(), {ErrorKind::unreachable, ErrorKind::deadline_exceeded, ErrorKind::peer_lost});
  expect_kind(node->get(ticket, by(seconds(30))), {ErrorKind::unreachable, ErrorKind::peer_lost});
  expect_idle();
}

TEST_P(Break, CloseFailsWhatRuns) {
  start_both();
  peer->expect_ok(put_command("large", large));
  auto destination = std::make_shared<std::vector<std::byte>>(large.size + 4096);
  GetOptions how = by(seconds(50), Placement::into);
  how.into = {DestinationRange{.data = destination->data(), .size = destination->size()}};
  how.into_hold = destination;
  GetHandle reading = node->get_async(from_peer("large"), std::move(how));
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return has_begun(destination->data(), destination->size()); }));
  node->close();
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_kind(waiting.take(), {ErrorKind::closed});
  ASSERT_TRUE(reading.wait(Deadline::in(kHangGuard)).ok());
  const Result<Got> got = reading.take();
  if (!got.ok()) {
    EXPECT_EQ(got.error().kind(), ErrorKind::closed) << got.error();
  }
  EXPECT_EQ(destination.use_count(), got.ok() ? 2 : 1) << "the destination is let go";
  const Result<Got> after = node->get(from_peer("k"), by(seconds(5)));
  ASSERT_FALSE(after.ok());
  EXPECT_EQ(after.error().kind(), ErrorKind::closed);
  EXPECT_EQ(put("k", small).error().kind(), ErrorKind::closed);
  node->close();  // idempotent
  // The peer's leases have come back; what was not read is still there.
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("leases") == 0; }));
}

TEST_P(Break, CloseUnderManyThreads) {
  for (int round = 0; round < 3; ++round) {
    start_both();
    std::atomic<int> running{0};
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        ++running;
        for (int i = 0;; ++i) {
          const std::string key = std::to_string(t) + "/" + std::to_string(i);
          const Result<Ticket> ticket = put(key, small);
          GetOptions how = by(seconds(40));
          const Result<Got> got =
              node->get(t % 2 == 0 ? Source::at(address, key_named(key)) : from_peer(key), how);
          if (got.ok()) continue;
          if (got.error().kind() != ErrorKind::closed && got.error().kind() != ErrorKind::cancelled) ++wrong;
          return;
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return running == 8; }));
    pass(milliseconds(20));
    node->close();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    node.reset();
    peer.reset();
  }
}

TEST_P(Break, DialsInBothDirectionsAtOnceMakeOneSession) {
  for (int round = 0; round < 3; ++round) {
    start_both();
    peer->send(Line("dial_at_once").with("address", address).with("threads", std::uint64_t{100}));
    std::atomic<int> answered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 100; ++t) {
      threads.emplace_back([&] {
        GetOptions how = by(seconds(30));
        how.wait = false;
        const Result<Got> got = node->get(from_peer("nobody publishes this"), std::move(how));
        answered += !got.ok() && got.error().kind() == ErrorKind::not_found ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Line there = peer->answer();
    EXPECT_EQ(answered, 100);
    EXPECT_EQ(there.number("answered"), 100U) << there.to_text();
    EXPECT_TRUE(eventually([&] {
      return node->stats().sessions == 1 && peer->command(Line("stats")).number("sessions") == 1;
    })) << state();
    const Result<Ticket> ticket = put("k", small);
    peer->expect_ok(get_command("a", "k"));
    peer->expect_ok(wait_command("a", small));
    node.reset();
    peer.reset();
  }
}

TEST_P(Break, AForkedChildsHandlesAreDeadAndTheParentGoesOn) {
  start_both();
  ASSERT_TRUE(put("k", small).ok());
  peer->expect_ok(get_command("a", "k", "view"));
  peer->expect_ok(wait_command("a", small));
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(peer->expect_ok(Line("use_in_child").with("address", address)).number("status"), 0U);
  peer->expect_ok(Line("verify")
                      .with("name", "a")
                      .with("seed", small.seed)
                      .with("size", small.size)
                      .with("parts", small.parts));
  ASSERT_TRUE(put("k2", small).ok());
  peer->expect_ok(get_command("b", "k2"));
  peer->expect_ok(wait_command("b", small));
  EXPECT_EQ(node->stats().sessions, 1U);
  peer->expect_ok(Line("drop").with("name", "a"));
  peer->expect_ok(Line("drop").with("name", "b"));
  expect_idle();
}

// --- Memory that is short.

TEST_P(Break, TinyPoolsThatBothPutAndThenGet) {
  start_both(Line().with("publish_pool_size", "2 MB").with("receive_pool_size", "2 MB"));
  const Pattern most{.seed = 6, .size = 1'500'000, .parts = 1};
  ASSERT_TRUE(put("k", most).ok());
  peer->expect_ok(put_command("k", most));
  peer->expect_ok(get_command("a", "k"));
  const Result<Got> got = node->get(from_peer("k"), by(seconds(40)));
  expect_whole(got, most);
  peer->expect_ok(wait_command("a", most));
  EXPECT_TRUE(eventually([&] { return node->stats().publish_pool.used == 0; })) << state();
}

TEST_P(Break, AFullPublishPoolSaysWhoHoldsIt) {
  start_both(Line().with("publish_pool_size", "2 MB"));
  ASSERT_TRUE(put("the holder", {.seed = 1, .size = 1'500'000, .parts = 1}).ok());
  PutOptions how;
  how.deadline = Deadline::in(milliseconds(50));
  const Result<Ticket> full = put("k", {.seed = 1, .size = 1'500'000, .parts = 1}, how);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().kind(), ErrorKind::pool_exhausted);
  EXPECT_NE(full.error().to_string().find("the holder"), std::string::npos) << full.error();
  const Result<Ticket> never = put("k", {.seed = 1, .size = 3'000'000, .parts = 1}, how);
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().kind(), ErrorKind::too_large);
  // One that waits is served when the reader has taken what fills the pool.
  peer->expect_ok(get_command("a", "the holder"));
  how.deadline = Deadline::in(seconds(40));
  EXPECT_TRUE(put("k", {.seed = 1, .size = 1'500'000, .parts = 1}, how).ok());
}

TEST_P(Break, AFullReceivePoolLosesNothing) {
  start_both(Line().with("receive_pool_size", "2 MB"));
  const Pattern most{.seed = 6, .size = 1'500'000, .parts = 1};
  peer->expect_ok(put_command("one", most));
  peer->expect_ok(put_command("two", most));
  peer->expect_ok(put_command("huge", {.seed = 1, .size = 3'000'000, .parts = 1}));
  Result<Got> one = node->get(from_peer("one"), by(seconds(30)));
  expect_whole(one, most);
  expect_kind(node->get(from_peer("two"), by(milliseconds(200))),
              {ErrorKind::deadline_exceeded, ErrorKind::pool_exhausted});
  expect_kind(node->get(from_peer("huge"), by(seconds(30))), {ErrorKind::too_large});
  GetHandle two = node->get_async(from_peer("two"), by(seconds(50)));
  one = Error(ErrorKind::closed, "dropped");
  ASSERT_TRUE(two.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(two.take(), most);
  EXPECT_EQ(peer->expect_ok(Line("withdraw").with("key", "huge")).number("found"), 1U);
  expect_idle();
  expect_peer_idle(*peer);
}

}  // namespace
}  // namespace stagewire::test
