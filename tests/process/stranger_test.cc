// A node among strangers: peers with another secret or none, garbage, floods, and a table of descriptors that
// is full.
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Stranger : public TwoNodes {
 protected:
  const Pattern small{.seed = 78, .size = 200'000, .parts = 2};

  static std::uint16_t port_of(const std::string& address) {
    return static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  }
  static Fd connect_raw(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_of(address));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return socket;
  }
  static bool hung_up(const Fd& socket) {
    for (;;) {
      pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 60'000) <= 0) return false;
      char byte = 0;
      if (::recv(socket.get(), &byte, 1, 0) <= 0) return true;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Routes, Stranger, ::testing::Values(Route::tcp, Route::net), route_name);

TEST_P(Stranger, GarbageChangesNothing) {
  start_both();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") + std::string(200, 'x'),
        std::string(4096, '\0'), std::string(4096, '\xa5')}) {
    const Fd socket = connect_raw(peer_address);
    static_cast<void>(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
    EXPECT_TRUE(hung_up(socket));
    peer->expect_ok(put_command("k", small));
    expect_whole(node->get(from_peer("k"), by(seconds(30))), small);
  }
}

TEST_P(Stranger, AFloodOfSilentConnectionsIsBoundedAndShort) {
  start_both(Line().with("opening_timeout", "500 ms"));
  peer->expect_ok(put_command("k", small));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), small);
  const std::uint64_t before = peer->command(Line("stats")).number("descriptors");
  std::vector<Fd> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(connect_raw(peer_address));
  EXPECT_LE(peer->command(Line("stats")).number("descriptors"), before + 66);
  // Who has a session goes on meanwhile.
  peer->expect_ok(put_command("k", small));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), small);
  // Who has none gets one when the flood's time is over.
  second = new_peer();
  start_peer(*second);
  peer->expect_ok(put_command("k", small));
  second->expect_ok(Line("get")
                        .with("name", "a")
                        .with("key", "k")
                        .with("address", peer_address)
                        .with("deadline", std::uint64_t{50'000}));
  second->expect_ok(wait_command("a", small));
  for (const Fd& socket : flood) EXPECT_TRUE(hung_up(socket));
}

TEST_P(Stranger, ASlowDripEnds) {
  start_both(Line().with("opening_timeout", "500 ms"));
  const Fd socket = connect_raw(peer_address);
  bool open = true;
  const std::string drip("STGW\1\1\1\0\1\0\1\0", 12);
  for (std::size_t i = 0; open && i < 10'000; ++i) {
    pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
    open = ::poll(&wait, 1, 20) == 0;
    if (open && i < drip.size()) open = ::send(socket.get(), &drip[i], 1, MSG_NOSIGNAL) == 1;
  }
  EXPECT_FALSE(open);
}

TEST_P(Stranger, AnotherSecretIsRefusedAtBothEnds) {
  start_both();
  second = new_peer();
  std::string other(kSecret);
  std::swap(other.front(), other.back());
  start_peer(*second, Line().with("secret", other));
  second->expect_ok(Line("get")
                        .with("name", "a")
                        .with("key", "k")
                        .with("address", address)
                        .with("deadline", std::uint64_t{30'000}));
  const Line refused = second->command(wait_command("a", small));
  EXPECT_EQ(refused.text("kind"), "auth_failed") << refused.text("text");
  EXPECT_NE(refused.text("text").find("secret"), std::string::npos) << refused.text("text");
  EXPECT_EQ(node->stats().sessions, 0U);
}

TEST_P(Stranger, NoSecretAgainstASecret) {
  start_both();
  for (const bool insecure : {false, true}) {
    second = new_peer();
    Line bare("start");
    bare.with("log_level", "off")
        .with("insecure", insecure ? "true" : "false")
        .with("publish_pool_size", "8 MB")
        .with("receive_pool_size", "8 MB")
        .with("touch_pools", "false");
    second->expect_ok(bare);
    second->expect_ok(Line("get")
                          .with("name", "a")
                          .with("key", "k")
                          .with("address", address)
                          .with("deadline", std::uint64_t{3000}));
    const Line refused = second->command(wait_command("a", small));
    const std::string kind = refused.text("kind");
    // Without a secret a node looks for the Unix socket of that port alone, where nobody is.
    EXPECT_TRUE(kind == "auth_failed" || (!insecure && kind == "unreachable")) << refused.text("text");
  }
  EXPECT_EQ(node->stats().sessions, 0U);
}

TEST_P(Stranger, AFullTableOfDescriptorsDoesNotSpinAndIsGotOver) {
  start_both();
  peer->expect_ok(put_command("k", small));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), small);
  peer->expect_ok(Line("fill_files"));
  std::vector<Fd> backlog;
  for (int i = 0; i < 8; ++i) backlog.push_back(connect_raw(peer_address));
  const std::uint64_t before = peer->expect_ok(Line("cpu_time")).number("us");
  expect_kind(node->get(Source::at(address, key_named("nothing")), by(seconds(2))),
              {ErrorKind::deadline_exceeded});
  const std::uint64_t used = peer->expect_ok(Line("cpu_time")).number("us") - before;
  EXPECT_LT(used, 1'000'000U) << "of 2 s, on accept alone";
  // The session that is there works without new descriptors.
  peer->expect_ok(put_command("k", {.seed = 4, .size = 1000, .parts = 1}));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), {.seed = 4, .size = 1000, .parts = 1});
  peer->expect_ok(Line("free_files"));
  backlog.clear();
  second = new_peer();
  start_peer(*second);
  peer->expect_ok(put_command("k", small));
  second->expect_ok(Line("get")
                        .with("name", "a")
                        .with("key", "k")
                        .with("address", peer_address)
                        .with("deadline", std::uint64_t{50'000}));
  second->expect_ok(wait_command("a", small));
}

TEST_P(Stranger, NoDescriptorsForDataConnectionsAreGotOver) {
  start_both();
  const Pattern tiny{.seed = 5, .size = 100, .parts = 1};  // travels in the grant
  peer->expect_ok(put_command("tiny", tiny));
  expect_whole(node->get(from_peer("tiny"), by(seconds(30))), tiny);
  ASSERT_TRUE(put("tiny", tiny).ok());
  peer->expect_ok(get_command("t", "tiny"));
  peer->expect_ok(wait_command("t", tiny));
  peer->expect_ok(put_command("theirs", small));
  ASSERT_TRUE(put("ours", small).ok());
  peer->expect_ok(Line("fill_files"));

  // It cannot dial: a typed error by its deadline, and the payload stays.
  peer->expect_ok(get_command("a", "ours").with("deadline", std::uint64_t{2000}));
  const Line refused = peer->command(wait_command("a", small));
  EXPECT_EQ(refused.verb, "error");
  EXPECT_TRUE(refused.text("kind") == "io" || refused.text("kind") == "deadline_exceeded")
      << refused.text("text");
  // It cannot accept: the get that waits goes through once it can.
  GetHandle waiting = node->get_async(from_peer("theirs"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("leases") == 1; }));
  peer->expect_ok(Line("free_files"));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(waiting.take(), small);

  peer->expect_ok(get_command("b", "ours"));
  peer->expect_ok(wait_command("b", small));
  for (const char* name : {"t", "b"}) peer->expect_ok(Line("drop").with("name", name));
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Stranger, ANodeThatFindsNoDescriptorsSaysSo) {
  start_both();
  second = std::make_unique<PeerProcess>();
  second->expect_ok(Line("fill_files"));
  const Line refused = second->command(options());
  EXPECT_EQ(refused.verb, "error");
  EXPECT_EQ(refused.text("kind"), "io") << refused.text("text");
  second->expect_ok(Line("free_files"));
  start_peer(*second);
}

TEST_P(Stranger, APortInUse) {
  start_both();
  second = new_peer();
  const Line refused =
      second->command(options(Line().with("listen", "127.0.0.1:" + std::to_string(port_of(address)))));
  EXPECT_EQ(refused.verb, "error");
  EXPECT_EQ(refused.text("kind"), "io");
  EXPECT_NE(refused.text("text").find(std::to_string(port_of(address))), std::string::npos)
      << refused.text("text");
}

// --- Leases that end by the clock.

class LeaseExpiry : public TwoNodes {
 protected:
  const Pattern small{.seed = 78, .size = 200'000, .parts = 2};
  const Pattern large{.seed = 77, .size = 300 * kMegabyte, .parts = 3};
};
INSTANTIATE_TEST_SUITE_P(Routes, LeaseExpiry, ::testing::Values(Route::net), route_name);

TEST_P(LeaseExpiry, AReaderThatWasForgottenIsTrustedAgain) {
  start_both(Line().with("lease", "1 s"));
  ASSERT_TRUE(put("large", large).ok());
  peer->expect_ok(get_command("a", "large", "into").with("size", large.size).with("parts", large.parts));
  EXPECT_TRUE(
      eventually([&] { return peer->command(Line("progress").with("name", "a")).number("begun") == 1; }));
  ASSERT_TRUE(peer->stop());
  EXPECT_TRUE(eventually([&] { return node->stats().leases == 0 && node->stats().sessions == 0; }))
      << state();
  peer->resume();
  static_cast<void>(peer->command(wait_command("a", large)));
  peer->expect_ok(Line("drop").with("name", "a"));
  node->withdraw(key_named("large"));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(put("k", small).ok());
    peer->expect_ok(get_command("b", "k"));
    peer->expect_ok(wait_command("b", small));
    if (round == 1) break;
    EXPECT_TRUE(eventually([&] { return node->stats().leases == 0; })) << state();
    // Without a lease it is forgotten after six periods.
    ASSERT_TRUE(peer->stop());
    expect_kind(node->get(Source::at(address, key_named("nothing")), by(seconds(9))),
                {ErrorKind::deadline_exceeded});
    EXPECT_EQ(node->explain().find("no session now"), std::string::npos) << node->explain();
    peer->resume();
  }
  expect_idle();
}

TEST_P(LeaseExpiry, ASenderThatWasStoppedIsNotBelievedBlindly) {
  start_both(Line().with("lease", "1 s"));
  peer->expect_ok(put_command("k", small));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), small);
  ASSERT_TRUE(peer->stop());
  EXPECT_TRUE(eventually([&] { return node->stats().sessions == 0; })) << state();
  expect_kind(node->get(from_peer("k"), by(milliseconds(500))),
              {ErrorKind::deadline_exceeded, ErrorKind::unreachable});
  peer->resume();
  peer->expect_ok(put_command("k", small));
  expect_whole(node->get(from_peer("k"), by(seconds(40))), small);
}

}  // namespace
}  // namespace stagewire::test
