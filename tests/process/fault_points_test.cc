// Either process is killed or stopped at each named stage of a transfer (fault_points.h). The other gets the
// right bytes or a typed error, nothing that is still owed is lost, and nothing is left of the dead.
#include "base/fault_points.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Points = std::vector<std::string_view>;

class FaultPoints : public TwoNodes {
 protected:
  const Pattern pattern{.seed = 91, .size = 3 * kMegabyte, .parts = 2};

  /// Where the sender stands before it is told that the bytes were read.
  static Points of_sender() {
    Points points{fault_point::kHelloReceived, fault_point::kProofReceived, fault_point::kSessionUp,
                  fault_point::kClaimReceived, fault_point::kLeaseMade};
    if (transport_of(GetParam()) == "tcp") points.push_back(fault_point::kDataOpened);
    if (is_verbs(GetParam())) points.push_back(fault_point::kTransportMessage);
    return points;
  }
  static Points of_reader_before_the_grant() {
    return {fault_point::kDialled, fault_point::kProofSent, fault_point::kGreeted, fault_point::kSessionUp,
            fault_point::kClaimSent};
  }
  static Points of_reader_with_the_grant() {
    Points points{fault_point::kGrantReceived, fault_point::kReadStarted, fault_point::kReadDone};
    if (is_verbs(GetParam())) points.push_back(fault_point::kTransportMessage);
    return points;
  }

  /// Many peers run at once, and what a device may reach is locked memory.
  static Line small_pools() {
    return Line().with("publish_pool_size", "40 MB").with("receive_pool_size", "40 MB");
  }
  /// A peer that gets a signal at a point. What it has to do with is published under the point's name.
  struct Doomed {
    std::string point;
    std::unique_ptr<PeerProcess> peer;
    Source source;      // of what it publishes
    GetHandle running;  // this node's get of it
  };
  Doomed start_doomed(std::string_view point, const std::string& signal) {
    Doomed doomed{.point = std::string(point), .peer = new_peer(), .source = {}, .running = {}};
    start_peer(*doomed.peer, small_pools());
    doomed.peer->expect_ok(Line("arm").with("point", doomed.point).with("signal", signal));
    return doomed;
  }
  /// All at once: what the others wait for takes its time.
  std::vector<Doomed> start_all_doomed(const Points& points, const std::string& signal) {
    std::vector<Doomed> all;
    for (const std::string_view point : points) all.push_back(start_doomed(point, signal));
    return all;
  }
  void start_own_node() {
    node = start_node(small_pools());
    address = node->addresses().front();
  }
  /// This node gets what the peer publishes.
  void get_from(Doomed& doomed, std::chrono::nanoseconds timeout) {
    doomed.source = of_ticket(doomed.peer->expect_ok(put_command(doomed.point, pattern)));
    doomed.running = node->get_async(doomed.source, by(timeout));
  }
  static Result<Got> outcome_of(GetHandle& handle) {
    EXPECT_TRUE(handle.wait(Deadline::in(kHangGuard)).ok());
    return handle.take();
  }
  /// The peer gets what this node publishes. It may be gone or stopped before it has answered the command.
  void let_get(const Doomed& doomed, const std::string& placement = "copy") {
    ASSERT_TRUE(put(doomed.point, pattern).ok());
    doomed.peer->send(get_command("a", doomed.point, placement).with("deadline", std::uint64_t{20'000}));
  }
  static void resume(const Doomed& doomed) {
    doomed.peer->resume();
    EXPECT_EQ(doomed.peer->answer().verb, "ok");
  }
  void expect_peer_has_it(const Doomed& doomed) {
    doomed.peer->expect_ok(wait_command("a", pattern));
    doomed.peer->expect_ok(Line("drop").with("name", "a"));
    expect_peer_idle(*doomed.peer);
  }
  /// What was published for readers that died is read by the next one.
  void expect_another_gets(const std::vector<std::string>& keys) {
    EXPECT_EQ(node->stats().published, keys.size());
    second = new_peer();
    start_peer(*second, small_pools());
    for (const std::string& key : keys) {
      second->expect_ok(get_command("a", key));
      second->expect_ok(wait_command("a", pattern));
    }
    expect_idle();
  }
};
INSTANTIATE_TEST_SUITE_P(Routes, FaultPoints, kMainRoutes, route_name);

class FaultPointsOfViews : public FaultPoints {};
INSTANTIATE_TEST_SUITE_P(Routes, FaultPointsOfViews, ::testing::Values(Route::shm), route_name);

TEST_P(FaultPoints, TheSenderIsKilled) {
  start_own_node();
  for (const std::string_view point : of_sender()) {
    SCOPED_TRACE(point);
    Doomed sender = start_doomed(point, "kill");
    get_from(sender, seconds(40));
    EXPECT_TRUE(sender.peer->wait_for_end());
    expect_kind(outcome_of(sender.running),
                {ErrorKind::peer_lost, ErrorKind::unreachable, ErrorKind::lease_lost});
    expect_idle();
  }
}

TEST_P(FaultPoints, TheSenderIsKilledWhenTheBytesHaveBeenRead) {
  start_own_node();
  Doomed sender = start_doomed(fault_point::kConsumedReceived, "kill");
  get_from(sender, seconds(40));
  EXPECT_TRUE(sender.peer->wait_for_end());
  expect_whole(outcome_of(sender.running), pattern);
  expect_idle();
}

TEST_P(FaultPoints, TheSenderIsStopped) {
  start_own_node();
  std::vector<Doomed> senders = start_all_doomed(of_sender(), "stop");
  for (Doomed& sender : senders) get_from(sender, slow() ? seconds(15) : seconds(4));
  for (Doomed& sender : senders) EXPECT_TRUE(sender.peer->wait_for_stop()) << sender.point;
  for (Doomed& sender : senders) {
    SCOPED_TRACE(sender.point);
    expect_kind(outcome_of(sender.running), {ErrorKind::deadline_exceeded, ErrorKind::unreachable});
    sender.peer->resume();
    expect_whole(node->get(sender.source, by(seconds(40))), pattern);
    expect_peer_idle(*sender.peer);
  }
  expect_idle();
}

TEST_P(FaultPoints, TheSenderIsStoppedWhenTheBytesHaveBeenRead) {
  start_own_node();
  Doomed sender = start_doomed(fault_point::kConsumedReceived, "stop");
  get_from(sender, seconds(40));
  EXPECT_TRUE(sender.peer->wait_for_stop());
  expect_whole(outcome_of(sender.running), pattern);
  sender.peer->resume();
  expect_idle();
  expect_peer_idle(*sender.peer);
}

TEST_P(FaultPoints, TheSenderIsStoppedWhileAClaimWaits) {
  start_both(small_pools());
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(2)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  ASSERT_TRUE(peer->stop());
  expect_kind(outcome_of(waiting), {ErrorKind::deadline_exceeded});
  peer->resume();
  peer->expect_ok(put_command("later", pattern));
  expect_whole(node->get(from_peer("later"), by(seconds(40))), pattern);
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(FaultPoints, TheReaderIsKilled) {
  start_own_node();
  Points points = of_reader_before_the_grant();
  for (const std::string_view point : of_reader_with_the_grant()) points.push_back(point);
  std::vector<std::string> keys;
  for (const Doomed& reader : start_all_doomed(points, "kill")) {
    let_get(reader);
    EXPECT_TRUE(reader.peer->wait_for_end()) << reader.point;
    keys.push_back(reader.point);
  }
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0 && node->stats().waiting_claims == 0; }))
      << state();
  expect_another_gets(keys);
}

TEST_P(FaultPoints, TheReaderIsKilledWhenItHasToldThatItHasRead) {
  start_own_node();
  const Doomed reader = start_doomed(fault_point::kSettledReceived, "kill");
  let_get(reader);
  EXPECT_TRUE(reader.peer->wait_for_end());
  expect_idle();
}

TEST_P(FaultPoints, TheReaderIsStoppedBeforeTheGrant) {
  start_own_node();
  const std::vector<Doomed> readers = start_all_doomed(of_reader_before_the_grant(), "stop");
  for (const Doomed& reader : readers) let_get(reader);
  for (const Doomed& reader : readers) EXPECT_TRUE(reader.peer->wait_for_stop()) << reader.point;
  pass(milliseconds(100));
  EXPECT_EQ(node->stats().published, readers.size());
  // The last one may have a lease by now, which silence ends.
  for (auto reader = readers.rbegin(); reader != readers.rend(); ++reader) {
    SCOPED_TRACE(reader->point);
    resume(*reader);
    expect_peer_has_it(*reader);
  }
  expect_idle();
}

TEST_P(FaultPoints, TheReaderIsStoppedWithTheGrant) {
  start_own_node();
  const std::vector<Doomed> readers = start_all_doomed(of_reader_with_the_grant(), "stop");
  for (const Doomed& reader : readers) let_get(reader);
  for (const Doomed& reader : readers) EXPECT_TRUE(reader.peer->wait_for_stop()) << reader.point;
  if (!between_hosts(GetParam())) {
    // A stopped process is not a dead one, however long it sleeps.
    pass(milliseconds(100));
    EXPECT_EQ(node->stats().leases, readers.size()) << state();
    for (const Doomed& reader : readers) {
      SCOPED_TRACE(reader.point);
      resume(reader);
      expect_peer_has_it(reader);
    }
    return expect_idle();
  }
  const std::set<std::string> kinds{"lease_lost", "peer_lost", "deadline_exceeded"};
  // Silence ends the leases, and the memory goes to something else.
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  EXPECT_EQ(node->stats().published, readers.size());
  for (const Doomed& reader : readers) EXPECT_TRUE(node->withdraw(key_named(reader.point))) << reader.point;
  EXPECT_TRUE(eventually([&] { return node->stats().publish_pool.used == 0; })) << state();
  ASSERT_TRUE(put("other", {.seed = 9, .size = readers.size() * pattern.size, .parts = 1}).ok());
  for (const Doomed& reader : readers) {
    SCOPED_TRACE(reader.point);
    resume(reader);
    const Line answer = reader.peer->command(wait_command("a", pattern));
    EXPECT_EQ(answer.verb, "error") << answer.to_text();
    EXPECT_EQ(kinds.count(answer.text("kind")), 1U) << answer.to_text();
    reader.peer->expect_ok(Line("drop").with("name", "a"));
    expect_peer_idle(*reader.peer);
  }
  node->withdraw(key_named("other"));
  expect_idle();
}

TEST_P(FaultPoints, TheReaderIsStoppedWhileItsClaimWaits) {
  start_both(small_pools());
  peer->expect_ok(get_command("a", "k").with("deadline", std::uint64_t{40'000}));
  EXPECT_TRUE(eventually([&] { return node->stats().waiting_claims == 1; })) << state();
  ASSERT_TRUE(peer->stop());
  ASSERT_TRUE(put("k", pattern).ok());
  EXPECT_EQ(node->stats().leases, 1U) << state();
  if (between_hosts(GetParam())) {
    EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  }
  EXPECT_EQ(node->stats().published, 1U);
  peer->resume();
  // Between hosts the read that it was lent is no more; what it waited for is there all the same.
  const Line answer = peer->command(wait_command("a", pattern));
  peer->expect_ok(Line("drop").with("name", "a"));
  if (answer.verb != "ok") {
    EXPECT_TRUE(between_hosts(GetParam())) << answer.to_text();
    EXPECT_EQ(answer.text("kind"), "lease_lost") << answer.to_text();
    peer->expect_ok(get_command("b", "k"));
    peer->expect_ok(wait_command("b", pattern));
    peer->expect_ok(Line("drop").with("name", "b"));
  }
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(FaultPointsOfViews, TheReaderIsStoppedAsItGivesOneBack) {
  start_own_node();
  const Doomed reader = start_doomed(fault_point::kViewReleased, "stop");
  let_get(reader, "view");
  EXPECT_EQ(reader.peer->answer().verb, "ok");
  reader.peer->expect_ok(wait_command("a", pattern));
  reader.peer->send(Line("drop").with("name", "a"));
  EXPECT_TRUE(reader.peer->wait_for_stop());
  pass(milliseconds(100));
  EXPECT_EQ(node->stats().leases, 1U) << state();
  resume(reader);
  expect_idle();
  expect_peer_idle(*reader.peer);
}

TEST_P(FaultPointsOfViews, TheReaderIsKilledAsItGivesOneBack) {
  start_own_node();
  const Doomed reader = start_doomed(fault_point::kViewReleased, "kill");
  let_get(reader, "view");
  EXPECT_EQ(reader.peer->answer().verb, "ok");
  reader.peer->expect_ok(wait_command("a", pattern));
  reader.peer->send(Line("drop").with("name", "a"));
  EXPECT_TRUE(reader.peer->wait_for_end());
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  expect_another_gets({reader.point});
}

}  // namespace
}  // namespace stagewire::test
