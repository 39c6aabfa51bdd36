// Views: memory of another process, read in place. What keeps them, and what ends their leases.
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class View : public TwoNodes {
 protected:
  const Pattern pattern{.seed = 21, .size = 5 * kMegabyte, .parts = 3};

  /// The peer holds a view of this node's payload.
  void lend_view() {
    ASSERT_TRUE(put("k", pattern).ok());
    peer->expect_ok(get_command("a", "k", "view"));
    EXPECT_EQ(peer->expect_ok(wait_command("a", pattern)).number("view"), 1U);
    EXPECT_EQ(node->stats().leases, 1U);
  }
  Got borrow_view() {
    peer->expect_ok(put_command("k", pattern));
    Result<Got> got = node->get(from_peer("k"), by(seconds(30), Placement::view));
    expect_whole(got, pattern);
    if (!got.ok()) return {};
    EXPECT_TRUE(got->view) << got->placement_note;
    return std::move(got).value();
  }
  void expect_second_reader_gets_it() {
    second = new_peer();
    start_peer(*second);
    second->expect_ok(get_command("a", "k"));
    second->expect_ok(wait_command("a", pattern));
    expect_idle();
  }
};
INSTANTIATE_TEST_SUITE_P(Routes, View, ::testing::Values(Route::shm), route_name);

TEST_P(View, HoldsItsLeaseAsLongAsAnyTensorIsReferredTo) {
  start_both();
  Got got = borrow_view();
  Tensor tensor = got.payload.tensors().at(1);
  got = Got();
  EXPECT_EQ(node->stats().views, 1U);
  EXPECT_EQ(peer->command(Line("stats")).number("leases"), 1U);
  EXPECT_TRUE(tensor.read_only);
  EXPECT_TRUE(
      matches_pattern(static_cast<const std::byte*>(tensor.data), tensor.bytes(), pattern.part_seed(1)));
  tensor = Tensor();
  EXPECT_EQ(node->stats().views, 0U);
  expect_peer_idle(*peer);
}

TEST_P(View, StaysWholeWhenTheSenderIsKilled) {
  start_both();
  const Got got = borrow_view();
  peer->kill();
  EXPECT_TRUE(eventually([&] { return node->stats().sessions == 0; }));
  EXPECT_EQ(mismatch(got.payload, pattern), "");
}

TEST_P(View, StaysWholeWhenTheSenderCloses) {
  start_both();
  Got got = borrow_view();
  peer->expect_ok(Line("destroy"));
  EXPECT_TRUE(eventually([&] { return node->stats().sessions == 0; }));
  EXPECT_EQ(mismatch(got.payload, pattern), "");
  got = Got();
  expect_idle();
}

TEST_P(View, ItsMemoryIsNotSaidToBeFreeWhenTheSenderEnds) {
  start_both();
  std::map<std::string, EndReason> released;
  for (const std::string key : {"viewed", "unread"}) {
    PutOptions how;
    how.released = [&released, key](EndReason reason) { released[key] = reason; };
    ASSERT_TRUE(put(key, pattern, std::move(how)).ok());
  }
  peer->expect_ok(get_command("a", "viewed", "view"));
  EXPECT_EQ(peer->expect_ok(wait_command("a", pattern)).number("view"), 1U);
  node.reset();
  EXPECT_EQ(released, (std::map<std::string, EndReason>{{"unread", EndReason::closed}}));
  peer->expect_ok(Line("verify")
                      .with("name", "a")
                      .with("seed", pattern.seed)
                      .with("size", pattern.size)
                      .with("parts", pattern.parts));
}

TEST_P(View, StaysWholeWhenItsPayloadIsReplacedAndThePoolIsFilled) {
  start_both(Line().with("publish_pool_size", "16 MB"));
  const Got got = borrow_view();
  for (std::uint64_t i = 0; i < 10; ++i) {
    peer->expect_ok(put_command("k", {.seed = 100 + i, .size = pattern.size, .parts = 1}));
    EXPECT_EQ(mismatch(got.payload, pattern), "");
  }
}

TEST_P(View, OutlivesItsOwnNode) {
  start_both();
  Got got = borrow_view();
  node->close();
  EXPECT_EQ(mismatch(got.payload, pattern), "");
  // The process lives and may read: the lease has to stay.
  EXPECT_EQ(peer->command(Line("stats")).number("leases"), 1U);
  EXPECT_EQ(mismatch(got.payload, pattern), "");
  got = Got();
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("leases") == 0; }))
      << "nobody can read it any more";
}

// What a reader says last must count, though its lifeline hangs up at the same moment.
TEST_P(View, OneGivenBackJustBeforeItsNodeClosesIsConsumed) {
  start_both();
  for (int round = 0; round < 5; ++round) {
    Got got = borrow_view();
    got = {};
    node->close();
    expect_peer_idle(*peer);
    node = start_node();
  }
}

TEST_P(View, AKilledReadersViewIsOwedAgain) {
  start_both();
  lend_view();
  peer->kill();
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  EXPECT_EQ(node->stats().published, 1U);
  expect_second_reader_gets_it();
}

TEST_P(View, AKilledReaderIsDeadEvenIfItsForkedChildLives) {
  start_both();
  lend_view();
  const auto child = static_cast<pid_t>(peer->expect_ok(Line("fork_child")).number("pid"));
  ASSERT_GT(child, 0);
  peer->kill();
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "the child was to live on meanwhile";
  expect_second_reader_gets_it();
}

TEST_P(View, AStoppedReaderIsNotADeadOne) {
  start_both(Line().with("heartbeat", "50 ms").with("lease", "300 ms"));
  lend_view();
  ASSERT_TRUE(peer->stop());
  pass(milliseconds(1000));
  EXPECT_EQ(node->stats().leases, 1U) << state();
  peer->resume();
  peer->expect_ok(Line("verify")
                      .with("name", "a")
                      .with("seed", pattern.seed)
                      .with("size", pattern.size)
                      .with("parts", pattern.parts));
  peer->expect_ok(Line("drop").with("name", "a"));
  expect_idle();
}

TEST_P(View, ASessionThatBreaksEndsNoLease) {
  start_both(Line().with("heartbeat", "50 ms").with("lease", "300 ms"));
  lend_view();
  EXPECT_GT(peer->expect_ok(Line("break")).number("count"), 0U);
  pass(milliseconds(1000));
  EXPECT_EQ(node->stats().leases, 1U) << state();
  peer->expect_ok(Line("verify")
                      .with("name", "a")
                      .with("seed", pattern.seed)
                      .with("size", pattern.size)
                      .with("parts", pattern.parts));
  peer->expect_ok(Line("drop").with("name", "a"));
  expect_idle();
}

TEST_P(View, AViewReleasedWhileNoSessionIsUpIsToldLater) {
  start_both();
  Got got = borrow_view();  // this side dialled
  EXPECT_GT(break_session_sockets(), 0U);
  got = Got();
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(View, TheLenderMayHaveDialled) {
  start_both();
  // The peer dials this node first, so that the session is its, and then is the lender.
  peer->expect_ok(Line("connect").with("address", address));
  EXPECT_TRUE(eventually([&] { return node->stats().sessions == 1; }));
  const Result<Ticket> ticket = Ticket::parse(peer->expect_ok(put_command("k", pattern)).text("ticket"));
  ASSERT_TRUE(ticket.ok());
  Result<Got> got = node->get(Source::of(*ticket), by(seconds(30), Placement::view));
  expect_whole(got, pattern);
  EXPECT_GT(peer->expect_ok(Line("break")).number("count"), 0U);
  got = Error(ErrorKind::closed, "dropped");
  expect_peer_idle(*peer);
}

TEST_P(View, ManyBreaksWhileViewsComeAndGo) {
  start_both();
  for (int round = 0; round < 15; ++round) {
    Got got = borrow_view();
    if (round % 3 == 0) break_session_sockets();
    if (round % 3 == 1) peer->expect_ok(Line("break"));
    EXPECT_EQ(mismatch(got.payload, pattern), "");
  }
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(View, TheShareOfViewsIsBoundedAndSaysSo) {
  start_both(Line().with("publish_pool_size", "16 MB").with("view_share_percent", "50"));
  const Got first = borrow_view();
  peer->expect_ok(put_command("k2", pattern));
  const Result<Got> second_got = node->get(from_peer("k2"), by(seconds(30), Placement::view));
  expect_whole(second_got, pattern);
  ASSERT_TRUE(second_got.ok());
  EXPECT_FALSE(second_got->view);
  EXPECT_FALSE(second_got->placement_note.empty());
}

TEST_P(View, AFullPoolNamesTheViewsHolder) {
  start_both(Line().with("publish_pool_size", "8 MB").with("view_share_percent", "100"));
  lend_view();
  PutOptions how;
  how.deadline = Deadline::in(milliseconds(50));
  const Result<Ticket> refused = put("big", {.seed = 1, .size = 6 * kMegabyte, .parts = 1}, std::move(how));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::pool_exhausted);
  EXPECT_NE(refused.error().to_string().find("put k"), std::string::npos) << refused.error();
  EXPECT_NE(node->explain().find("view"), std::string::npos);
}

TEST_P(View, TheMetricsNameTheHolderAndForgetIt) {
  start_both();
  const auto held = [this] {
    const std::string text = node->metrics_text();
    const std::size_t at = text.find("stagewire_view_age_seconds{holder=\"");
    return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(held(), "");
  lend_view();
  EXPECT_TRUE(eventually([&] { return held().ends_with(" 1"); })) << held();
  EXPECT_NE(node->metrics_text().find("stagewire_oldest_view_age_seconds 1\n"), std::string::npos);
  peer->expect_ok(Line("drop").with("name", "a"));
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  EXPECT_TRUE(held().ends_with(" 0")) << held();
}

}  // namespace
}  // namespace stagewire::test
