// Regions between two processes: memory of this process is published in place, read by another, and taken
// back from readers that are slow, frozen or dead. What they get is right or nothing.
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "process/support/progress.h"
#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::seconds;

class LentRegion : public TwoNodes {
 protected:
  void SetUp() override {
    TwoNodes::SetUp();
    memory.resize(pattern.size + 256 * pattern.parts);
  }
  void start_and_register() {
    // A reader that stops leaves a chunk half sent, because the sockets cannot hold one; and nothing but the
    // owner's will ends that within the test.
    start_both(Line().with("tcp_buffer", "64 KiB").with("lease", "5 min"));
    auto made = node->register_region(memory.data(), memory.size());
    ASSERT_TRUE(made.ok()) << made.error();
    region = std::move(made).value();
  }
  /// Fills the memory and publishes it; `free_again` says when it may be written to again.
  void lend(const std::string& key) {
    free_again = false;
    PutOptions how;
    how.released = [this](EndReason /*reason*/) { free_again = true; };
    const auto ticket = node->put_in_regions(key_named(key), make_payload_in(pattern, memory.data()),
                                             {region}, std::move(how));
    ASSERT_TRUE(ticket.ok()) << ticket.error();
  }
  /// The peer is in the middle of reading "k" into memory of its own.
  void begin_read() {
    lend("k");
    peer->expect_ok(get_command("g", "k", "into").with("size", pattern.size).with("parts", pattern.parts));
    EXPECT_TRUE(
        eventually([&] { return peer->expect_ok(Line("progress").with("name", "g")).number("begun") != 0; }));
  }
  /// Back with the memory, whose owner uses it at once.
  void take_back() {
    const Status closed = region->close(Deadline::in(kHangGuard));
    ASSERT_TRUE(closed.ok()) << closed.error();
    std::memset(memory.data(), 0xEE, memory.size());
  }
  /// The right bytes, if it was through in time, or an error that says that it was not.
  void expect_right_or_lost() {
    const Line answer = peer->command(wait_command("g", pattern));
    EXPECT_TRUE(answer.verb == "ok" || answer.text("kind") == "lease_lost" ||
                answer.text("kind") == "peer_lost" || answer.text("kind") == "cancelled")
        << answer.to_text();
  }

  const Pattern pattern{.seed = 91, .size = large_size(150 * kMegabyte), .parts = 3};
  std::vector<std::byte> memory;
  std::atomic<bool> free_again{false};
  std::shared_ptr<Region> region;  // goes before what it writes and reads
};
INSTANTIATE_TEST_SUITE_P(Routes, LentRegion, ::testing::ValuesIn(routes_here({Route::tcp, Route::net})),
                         route_name);

TEST_P(LentRegion, IsReadInPlace) {
  start_and_register();
  for (const std::string placement : {"copy", "into", "view"}) {
    lend(placement);
    peer->expect_ok(
        get_command(placement, placement, placement).with("size", pattern.size).with("parts", pattern.parts));
    const Line answer = peer->expect_ok(wait_command(placement, pattern));
    EXPECT_EQ(answer.text("transport"), transport_of(GetParam()));
    EXPECT_EQ(answer.number("view", 1), 0U);
    peer->expect_ok(Line("drop").with("name", placement));
    ASSERT_TRUE(eventually([&] { return free_again.load(); }));
  }
  EXPECT_EQ(node->stats().publish_pool.used, 0U);
  take_back();
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(LentRegion, IsTakenBackFromAReaderInTheMiddle) {
  start_and_register();
  begin_read();
  take_back();
  expect_right_or_lost();
  peer->expect_ok(Line("drop").with("name", "g"));
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(LentRegion, IsTakenBackFromAFrozenReader) {
  start_and_register();
  begin_read();
  ASSERT_TRUE(peer->stop());
  take_back();
  peer->resume();
  expect_right_or_lost();
  peer->expect_ok(Line("drop").with("name", "g"));
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(LentRegion, IsTakenBackFromADeadReader) {
  start_and_register();
  begin_read();
  peer->kill();
  take_back();
  expect_idle();
}

TEST_P(LentRegion, OtherReadsGoOnWhenOneIsTakenBack) {
  start_and_register();
  const Pattern other{.seed = 7, .size = pattern.size, .parts = 2};
  ASSERT_TRUE(put("other", other).ok());
  begin_read();
  peer->expect_ok(get_command("o", "other"));
  take_back();
  peer->expect_ok(wait_command("o", other));
  expect_right_or_lost();
}

}  // namespace
}  // namespace stagewire::test
