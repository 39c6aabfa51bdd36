// What works when nothing goes wrong, between two processes over every route.
#include <string>
#include <vector>

#include "process/support/stress.h"
#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Transfer : public TwoNodes {};
INSTANTIATE_TEST_SUITE_P(Routes, Transfer, kAllRoutes, route_name);

TEST_P(Transfer, EverySizeArrivesWhole) {
  start_both();
  std::uint64_t seed = 0;
  for (const std::uint64_t size : {0ULL, 1ULL, 255ULL, 8192ULL, 8193ULL, 100'000ULL, 5'000'003ULL}) {
    for (const Placement placement : {Placement::copy, Placement::view}) {
      const Pattern pattern{.seed = ++seed, .size = size, .parts = 3};
      peer->expect_ok(put_command("k", pattern));
      const Result<Got> got = node->get(from_peer("k"), by(seconds(30), placement));
      expect_whole(got, pattern);
      if (!got.ok()) return;
      const bool reads = size > 8192;
      EXPECT_EQ(got->transport, !reads ? "inline" : transport_of(GetParam()));
      EXPECT_EQ(got->view, reads && placement == Placement::view && GetParam() == Route::shm);
      EXPECT_EQ(got->placement_note.empty(), got->view || placement == Placement::copy || size == 0)
          << got->placement_note;
      EXPECT_EQ(got->size, size);
    }
  }
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Transfer, InPlaceMemoryIsSentAsItIs) {
  start_both();
  const Pattern pattern{.seed = 5, .size = 3 * kMegabyte, .parts = 4};
  peer->expect_ok(put_command("k", pattern).with("in_place", std::uint64_t{1}));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), pattern);
  expect_peer_idle(*peer);
}

TEST_P(Transfer, IntoOneDestinationAndIntoPages) {
  start_both();
  for (const std::uint64_t size : {3000ULL, 1'000'000ULL}) {
    const Pattern pattern{.seed = size, .size = size, .parts = 3};
    peer->expect_ok(put_command("k", pattern));
    std::vector<std::byte> one(size + 4096, std::byte{0xee});
    GetOptions how = by(seconds(30), Placement::into);
    how.into = {DestinationRange{.data = one.data(), .size = one.size() - 1024}};
    const Result<Got> got = node->get(from_peer("k"), std::move(how));
    expect_whole(got, pattern);
    for (std::size_t i = one.size() - 1024; i < one.size(); ++i)
      ASSERT_EQ(one[i], std::byte{0xee}) << "written beyond the destination";

    // Pages of odd sizes, in no order of memory, with canaries between them.
    peer->expect_ok(put_command("k", pattern));
    std::vector<std::byte> pages(2 * size, std::byte{0xee});
    how = by(seconds(30), Placement::into);
    std::vector<std::pair<std::size_t, std::size_t>> places;
    std::size_t left = size;
    for (std::size_t i = 0; left > 0; ++i) {
      const std::size_t page = std::min<std::size_t>(left, size / 7 + 13 * i);
      left -= page;
      places.emplace_back(2 * left, page);
    }
    for (const auto& [offset, length] : places)
      how.into.push_back({.data = pages.data() + offset, .size = length});
    const Result<Got> paged = node->get(from_peer("k"), std::move(how));
    ASSERT_TRUE(paged.ok()) << paged.error();
    std::vector<std::byte> packed;
    std::vector<bool> written(pages.size());
    for (const auto& [offset, length] : places) {
      packed.insert(packed.end(), pages.begin() + static_cast<std::ptrdiff_t>(offset),
                    pages.begin() + static_cast<std::ptrdiff_t>(offset + length));
      for (std::size_t i = offset; i < offset + length; ++i) written[i] = true;
    }
    EXPECT_EQ(packed, packed_bytes(pattern));
    for (std::size_t i = 0; i < pages.size(); ++i)
      ASSERT_TRUE(written[i] || pages[i] == std::byte{0xee}) << "written between the pages at " << i;
  }
  expect_peer_idle(*peer);
}

TEST_P(Transfer, ADestinationThatDoesNotFitLeavesThePayloadThere) {
  start_both();
  for (const std::uint64_t size : {3000ULL, 1'000'000ULL}) {
    const Pattern pattern{.seed = 1, .size = size, .parts = 2};
    peer->expect_ok(put_command("k", pattern));
    std::vector<std::byte> small(size - 1);
    for (const bool several : {false, true}) {
      GetOptions how = by(seconds(30), Placement::into);
      how.into = {DestinationRange{.data = small.data(), .size = small.size()}};
      if (several) how.into.push_back({.data = small.data(), .size = 2});
      expect_kind(node->get(from_peer("k"), std::move(how)),
                  {ErrorKind::too_large, ErrorKind::invalid_argument});
    }
    expect_whole(node->get(from_peer("k"), by(seconds(30))), pattern);
  }
}

TEST_P(Transfer, ClaimBeforePublish) {
  start_both();
  const Pattern pattern{.seed = 3, .size = kMegabyte, .parts = 1};
  GetHandle waiting = node->get_async(from_peer("later"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  EXPECT_FALSE(waiting.done());
  peer->expect_ok(put_command("later", pattern));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(waiting.take(), pattern);
  expect_peer_idle(*peer);
}

TEST_P(Transfer, AClaimMayWaitForASenderThatHasNotStarted) {
  node = start_node();
  const std::string port = std::to_string(11'000 + ::getpid() % 9000);  // below what the kernel hands out
  const std::string future = peer_host() + ":" + port;
  GetHandle waiting = node->get_async(Source::at(future, key_named("k")), by(seconds(50)));
  peer = new_peer();
  start_peer(*peer, Line().with("listen", future));
  const Pattern pattern{.seed = 3, .size = 50'000, .parts = 1};
  peer->expect_ok(put_command("k", pattern));
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_whole(waiting.take(), pattern);
}

TEST_P(Transfer, ManyOfOnePeerAtOnce) {
  start_both();
  std::vector<Source> sources;
  std::vector<GetOptions> how;
  for (std::uint64_t i = 0; i < 40; ++i) {
    peer->expect_ok(put_command("k" + std::to_string(i), {.seed = i + 1, .size = i * 1000, .parts = 1}));
    sources.push_back(from_peer("k" + std::to_string(i)));
    how.push_back(by(seconds(30)));
  }
  sources.push_back(from_peer("absent"));
  how.push_back(by(seconds(30)));
  how.back().wait = false;
  for (int round = 0; round < 2; ++round) {
    const std::vector<Result<Got>> all = node->get_many(sources, how);
    ASSERT_EQ(all.size(), sources.size());
    for (std::uint64_t i = 0; i < 40; ++i)
      expect_whole(all[i], {.seed = i + 1, .size = i * 1000, .parts = 1});
    expect_kind(all.back(), {ErrorKind::not_found});
    for (std::uint64_t i = 0; i < 40; ++i)
      peer->expect_ok(put_command("k" + std::to_string(i), {.seed = i + 1, .size = i * 1000, .parts = 1}));
  }
  how.pop_back();
  for (const Result<Got>& refused : node->get_many(sources, how))
    expect_kind(refused, {ErrorKind::invalid_argument});
}

TEST_P(Transfer, EveryOwedReaderGetsItOnce) {
  start_both();
  const Pattern pattern{.seed = 8, .size = 300'000, .parts = 2};
  PutOptions two;
  two.readers = 2;
  const Result<Ticket> ticket = put("k", pattern, std::move(two));
  ASSERT_TRUE(ticket.ok());
  peer->expect_ok(get_command("a", "k").with("reader", "first"));
  peer->expect_ok(wait_command("a", pattern));
  // The same reader again does not eat the other's.
  peer->expect_ok(get_command("b", "k").with("reader", "first").with("ticket", ticket->to_text()));
  EXPECT_EQ(peer->command(wait_command("b", pattern)).text("kind"), "consumed");
  peer->expect_ok(get_command("c", "k").with("reader", "second"));
  peer->expect_ok(wait_command("c", pattern));
  expect_idle();
}

TEST_P(Transfer, TicketsSayWhyTheyAreWorthNothing) {
  start_both();
  const Pattern pattern{.seed = 8, .size = 20'000, .parts = 1};
  const Source replaced = of_ticket(peer->expect_ok(put_command("k", pattern)));
  const Source cancelled = of_ticket(peer->expect_ok(put_command("k", pattern)));
  expect_kind(node->get(replaced, by(seconds(30))), {ErrorKind::replaced});
  EXPECT_EQ(peer->expect_ok(Line("withdraw").with("key", "k")).number("found"), 1U);
  expect_kind(node->get(cancelled, by(seconds(30))), {ErrorKind::cancelled});
  const Source expired = of_ticket(peer->expect_ok(put_command("k", pattern).with("ttl", std::uint64_t{20})));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("published") == 0; }));
  expect_kind(node->get(expired, by(seconds(30))), {ErrorKind::expired});
  const Source consumed = of_ticket(peer->expect_ok(put_command("k", pattern)));
  expect_whole(node->get(consumed, by(seconds(30))), pattern);
  expect_kind(node->get(consumed, by(seconds(30))), {ErrorKind::consumed});
  GetOptions impatient = by(seconds(30));
  impatient.wait = false;
  expect_kind(node->get(from_peer("k"), std::move(impatient)), {ErrorKind::not_found});
  expect_kind(node->get(from_peer("k"), by(milliseconds(100))), {ErrorKind::deadline_exceeded});
  expect_peer_idle(*peer);
}

TEST_P(Transfer, BothDirectionsAtOnceFromManyThreads) {
  start_both();
  const std::uint64_t threads = 8;
  const std::uint64_t rounds = 40;
  Line there("stress");
  there.with("address", address)
      .with("own", "p")
      .with("others", "t")
      .with("threads", threads)
      .with("rounds", rounds);
  peer->send(there);
  const StressResult here = run_stress(
      *node,
      {.other = peer_address, .own_prefix = "t", .other_prefix = "p", .threads = threads, .rounds = rounds});
  const Line answer = peer->answer();
  EXPECT_EQ(here.problem, "");
  EXPECT_EQ(here.good, threads * rounds);
  EXPECT_EQ(answer.text("problem"), "") << answer.to_text();
  EXPECT_EQ(answer.number("good"), threads * rounds);
  expect_idle();
  expect_peer_idle(*peer);
}

TEST_P(Transfer, ACancelledGetLeavesThePayload) {
  start_both();
  GetHandle waiting = node->get_async(from_peer("k"), by(seconds(50)));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 1; }));
  waiting.cancel();
  ASSERT_TRUE(waiting.wait(Deadline::in(kHangGuard)).ok());
  expect_kind(waiting.take(), {ErrorKind::cancelled});
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("waiting") == 0; }));
  const Pattern pattern{.seed = 2, .size = 20'000, .parts = 1};
  peer->expect_ok(put_command("k", pattern));
  expect_whole(node->get(from_peer("k"), by(seconds(30))), pattern);
}

TEST_P(Transfer, NoDescriptorsAreLeft) {
  start_node();  // what libraries open once and keep is open now
  const std::size_t before = open_descriptors();
  {
    start_both();
    const Pattern pattern{.seed = 2, .size = kMegabyte, .parts = 1};
    peer->expect_ok(put_command("k", pattern));
    ASSERT_TRUE(put("k", pattern).ok());
    expect_whole(node->get(from_peer("k"), by(seconds(30), Placement::view)), pattern);
    peer->expect_ok(get_command("a", "k", "view"));
    peer->expect_ok(wait_command("a", pattern));
    EXPECT_LE(peer->expect_ok(Line("destroy")).number("new_descriptors"), 1U)
        << "libsodium may keep the random device open";
    node.reset();
    peer.reset();
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace stagewire::test
