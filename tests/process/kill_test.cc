// Either process is killed or stopped at each stage of a transfer. The other gets a typed error or the right
// bytes, and nothing is left of the dead.
#include <csignal>
#include <string>
#include <vector>

#include "process/support/progress.h"
#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::set<ErrorKind> kDeath = {ErrorKind::peer_lost, ErrorKind::unreachable, ErrorKind::lease_lost,
                                    ErrorKind::deadline_exceeded};

class Kill : public TwoNodes {
 protected:
  // Large enough that a kill or a stop at the first byte comes before the last one.
  const Pattern large{.seed = 77, .size = large_size(300 * kMegabyte), .parts = 3};
  const Pattern small{.seed = 78, .size = 200'000, .parts = 2};

  struct Running {
    GetHandle handle;
    std::shared_ptr<std::vector<std::byte>> destination;
    bool begun() const { return has_begun(destination->data(), destination->size()); }
  };
  Running read_large(std::chrono::nanoseconds timeout) {
    Running running;
    running.destination = std::make_shared<std::vector<std::byte>>(large.size + 4096);
    GetOptions how = by(timeout, Placement::into);
    how.into = {DestinationRange{.data = running.destination->data(), .size = running.destination->size()}};
    how.into_hold = running.destination;
    running.handle = node->get_async(from_peer("large"), std::move(how));
    return running;
  }
};
INSTANTIATE_TEST_SUITE_P(Routes, Kill, kMainRoutes, route_name);

TEST_P(Kill, SenderKilledWhileAClaimWaits) {
  start_both();
  GetHandle waiting = node->get_async(from_peer("never"), by(seconds(3)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  peer->kill();
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_kind(waiting.take(), kDeath);
  expect_idle();
}

TEST_P(Kill, SenderKilledBetweenClaimAndGrant) {
  start_both();
  const Source source = of_ticket(peer->expect_ok(put_command("k", small)));
  const Pattern warm{.seed = 1, .size = 10, .parts = 1};
  peer->expect_ok(put_command("warm", warm));
  expect_whole(node->get(from_peer("warm"), by(seconds(30))), warm);
  ASSERT_TRUE(peer->stop());
  GetHandle running = node->get_async(source, by(seconds(40)));
  EXPECT_TRUE(eventually([&] { return node->stats().running_gets == 1; }));
  peer->kill();
  ASSERT_TRUE(running.wait(Deadline::in(kHangGuard)).ok());
  expect_kind(running.take(), {ErrorKind::peer_lost, ErrorKind::unreachable});
  expect_idle();
}

TEST_P(Kill, SenderStoppedBeforeTheGrant) {
  start_both();
  const Source source = of_ticket(peer->expect_ok(put_command("k", small)));
  const Pattern warm{.seed = 1, .size = 10, .parts = 1};
  peer->expect_ok(put_command("warm", warm));
  expect_whole(node->get(from_peer("warm"), by(seconds(30))), warm);
  ASSERT_TRUE(peer->stop());
  expect_kind(node->get(source, by(milliseconds(300))), {ErrorKind::deadline_exceeded});
  GetOptions impatient = by(seconds(40));
  impatient.wait = false;
  expect_kind(node->get(source, std::move(impatient)), {ErrorKind::deadline_exceeded});
  peer->resume();
  expect_whole(node->get(source, by(seconds(40))), small);
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Kill, SenderKilledInTheMiddleOfARead) {
  start_both();
  peer->expect_ok(put_command("large", large));
  const Running running = read_large(seconds(20));
  EXPECT_TRUE(eventually([&] { return running.begun(); }));
  peer->kill();
  GetHandle handle = running.handle;
  ASSERT_TRUE(handle.wait(Deadline::in(kHangGuard)).ok());
  Result<Got> got = handle.take();
  if (got.ok()) {
    expect_whole(got, large);  // the mapping outlives its maker: a copy over shm may well be complete
    got = Error(ErrorKind::closed, "dropped");
  } else {
    expect_kind(got, kDeath);
  }
  expect_idle();
}

TEST_P(Kill, SenderStoppedInTheMiddleOfAReadAndTheDestinationIsNeverTouchedLater) {
  start_both();
  peer->expect_ok(put_command("large", large));
  peer->expect_ok(put_command("k", small));
  // On emulated machines a second passes before the first byte.
  const Running running = read_large(slow() ? milliseconds(15'000) : milliseconds(1500));
  EXPECT_TRUE(eventually([&] { return running.begun(); }));
  ASSERT_TRUE(peer->stop());
  GetHandle handle = running.handle;
  ASSERT_TRUE(handle.wait(Deadline::in(kHangGuard)).ok());
  const Result<Got> got = handle.take();
  if (got.ok()) {
    expect_whole(got, large);
    peer->resume();
    return;
  }
  expect_kind(got, {ErrorKind::deadline_exceeded, ErrorKind::peer_lost});
  EXPECT_EQ(node->stats().quarantined, 0U);
  std::fill(running.destination->begin(), running.destination->end(), std::byte{0xcc});
  peer->resume();
  // The late bytes come before these on every connection.
  for (int i = 0; i < 3; ++i) {
    expect_whole(node->get(from_peer("k"), by(seconds(40))), small);
    peer->expect_ok(put_command("k", small));
  }
  const auto touched = std::find_if(running.destination->begin(), running.destination->end(),
                                    [](std::byte byte) { return byte != std::byte{0xcc}; });
  EXPECT_EQ(touched, running.destination->end())
      << "written after its release at " << touched - running.destination->begin();
  // The read is still owed.
  const Result<Got> again = node->get(from_peer("large"), by(seconds(50)));
  expect_whole(again, large);
}

TEST_P(Kill, ReaderKilledWhileItsClaimWaits) {
  start_both();
  peer->expect_ok(get_command("a", "later"));
  EXPECT_TRUE(eventually([&] { return node->stats().waiting_claims == 1; })) << state();
  peer->kill();
  EXPECT_TRUE(eventually([&] { return node->stats().waiting_claims == 0; })) << state();
  second = new_peer();
  start_peer(*second);
  ASSERT_TRUE(put("later", small).ok());
  second->expect_ok(get_command("a", "later"));
  second->expect_ok(wait_command("a", small));
  expect_idle();
}

TEST_P(Kill, ReaderKilledInTheMiddleOfARead) {
  start_both();
  ASSERT_TRUE(put("large", large).ok());
  peer->expect_ok(get_command("a", "large", "into").with("size", large.size).with("parts", large.parts));
  EXPECT_TRUE(
      eventually([&] { return peer->command(Line("progress").with("name", "a")).number("begun") == 1; }));
  peer->kill();
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  if (node->stats().published == 0) return;  // it was quick enough to have read it all
  second = new_peer();
  start_peer(*second);
  second->expect_ok(get_command("a", "large"));
  second->expect_ok(wait_command("a", large));
  expect_idle();
}

TEST_P(Kill, ReaderStoppedInTheMiddleOfAReadGetsNoWrongBytes) {
  start_both();
  PutOptions how;
  how.max_lifetime = seconds(600);
  ASSERT_TRUE(put("large", large, std::move(how)).ok());
  peer->expect_ok(get_command("a", "large", "into").with("size", large.size).with("parts", large.parts));
  EXPECT_TRUE(
      eventually([&] { return peer->command(Line("progress").with("name", "a")).number("begun") == 1; }));
  ASSERT_TRUE(peer->stop());
  if (between_hosts(GetParam())) {
    // Silence ends the lease; the memory is used for something else.
    EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
    node->withdraw(key_named("large"));
    EXPECT_TRUE(eventually([&] { return node->stats().publish_pool.used == 0; })) << state();
    ASSERT_TRUE(put("other", {.seed = 9, .size = large.size, .parts = 1}).ok());
  } else {
    // On one host a stopped process is not a dead one, however long it sleeps.
    pass(milliseconds(500));
    if (node->stats().published == 1) {
      EXPECT_EQ(node->stats().leases, 1U) << state();
    }
  }
  peer->resume();
  const Line answer = peer->command(wait_command("a", large));
  if (answer.verb != "ok") {
    EXPECT_NE(answer.text("kind"), "wrong_bytes") << answer.to_text();
    EXPECT_TRUE(between_hosts(GetParam())) << answer.to_text();
  }
  node->withdraw(key_named("other"));
  expect_idle();
}

TEST_P(Kill, OneOfSeveralReadersDies) {
  start_both();
  PutOptions three;
  three.readers = 3;
  ASSERT_TRUE(put("large", large, std::move(three)).ok());
  second = new_peer();
  start_peer(*second);
  peer->expect_ok(get_command("a", "large", "into").with("size", large.size).with("parts", large.parts));
  second->expect_ok(get_command("a", "large").with("reader", "one"));
  EXPECT_TRUE(
      eventually([&] { return peer->command(Line("progress").with("name", "a")).number("begun") == 1; }));
  peer->kill();
  second->expect_ok(wait_command("a", large));
  second->expect_ok(Line("drop").with("name", "a"));
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
  for (const char* reader : {"two", "three"}) {
    if (node->stats().published == 0) break;  // the dead one had read it all
    second->expect_ok(get_command("a", "large").with("reader", reader));
    second->expect_ok(wait_command("a", large));
    second->expect_ok(Line("drop").with("name", "a"));
  }
  expect_idle();
}

TEST_P(Kill, ReplacedAndCancelledInTheMiddleOfARead) {
  start_both();
  peer->expect_ok(put_command("large", large));
  const Running first = read_large(seconds(50));
  EXPECT_TRUE(eventually([&] { return first.begun(); }));
  peer->expect_ok(put_command("large", small));
  EXPECT_EQ(peer->expect_ok(Line("withdraw").with("key", "large")).number("found"), 1U);
  GetHandle handle = first.handle;
  ASSERT_TRUE(handle.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(handle.take(), large);  // all of exactly the granted generation
  expect_peer_idle(*peer);
}

TEST_P(Kill, TheTimeToLiveDoesNotEndARunningRead) {
  start_both();
  peer->expect_ok(put_command("large", large)
                      .with("ttl", std::uint64_t{30'000})
                      .with("max_lifetime", std::uint64_t{2000}));
  const Running running = read_large(seconds(50));
  GetHandle handle = running.handle;
  ASSERT_TRUE(handle.wait(Deadline::in(kHangGuard)).ok());
  const Result<Got> got = handle.take();
  if (got.ok()) {
    expect_whole(got, large);
  } else {
    // The machine was so slow that the claim came when the payload had gone, or even waited for the next one.
    expect_kind(got, {ErrorKind::expired, ErrorKind::deadline_exceeded});
  }
  expect_peer_idle(*peer);
}

TEST_P(Kill, ARestartedSenderIsANewNode) {
  const std::string port = std::to_string(20000 + ::getpid() % 9000);
  node = start_node();
  address = node->addresses().front();
  peer = new_peer();
  start_peer(*peer, Line().with("listen", peer_host() + ":" + port));
  peer_address = peer_host() + ":" + port;
  const Source ticket = of_ticket(peer->expect_ok(put_command("k", small)));
  Source by_port = ticket;
  by_port.addresses = {peer_address};
  peer->expect_ok(put_command("warm", small));
  expect_whole(node->get(from_peer("warm"), by(seconds(30))), small);
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  // Something is left to be told to a process that will never hear it.
  ASSERT_TRUE(peer->stop());
  expect_kind(node->get(by_port, by(milliseconds(200))), {ErrorKind::deadline_exceeded});
  peer->kill();
  peer = new_peer();
  start_peer(*peer, Line().with("listen", peer_host() + ":" + port));
  peer->expect_ok(put_command("later", small));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(waiting.take(), small);
  expect_kind(node->get(by_port, by(seconds(30))), {ErrorKind::peer_restarted});
  expect_kind(node->get(ticket, by(seconds(30))),
              {ErrorKind::peer_restarted, ErrorKind::unreachable, ErrorKind::peer_lost});
}

TEST_P(Kill, DeadPeersLeaveNoDescriptors) {
  start_both();
  const Pattern pattern{.seed = 4, .size = kMegabyte, .parts = 1};
  std::size_t after_first = 0;
  for (int round = 0; round < 3; ++round) {
    const std::unique_ptr<PeerProcess> mortal = new_peer();
    const std::string there = start_peer(*mortal);
    mortal->expect_ok(put_command("k", pattern));
    expect_whole(node->get(Source::at(there, key_named("k")), by(seconds(30), Placement::view)), pattern);
    mortal->kill();
    EXPECT_TRUE(eventually([&] { return node->stats().sessions == 0; })) << state();
    if (between_hosts(GetParam())) break;  // its entry stays for six lease periods
    EXPECT_TRUE(eventually([&] { return after_first == 0 || open_descriptors() <= after_first; }))
        << open_descriptors() << " descriptors, after the first round " << after_first;
    pass(milliseconds(50));
    if (after_first == 0) after_first = open_descriptors();
  }
}

}  // namespace
}  // namespace stagewire::test
