// What a reader has open at its lenders, and what it repeats after a reconnect.
#include "node/claim_book.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

GetPtr make_get(std::chrono::nanoseconds timeout = std::chrono::seconds(5)) {
  Source source = Source::at("h:1", Key{.name_space = "n", .from_stage = "f", .to_stage = "t", .key = "k"});
  source.generation = 9;
  GetOptions options(Deadline::in(timeout));
  options.reader = "r";
  options.placement = Placement::view;
  return std::make_shared<GetOperation>(std::move(source), std::move(options),
                                        Oneshot<Result<Got>>::make().promise);
}

std::uint64_t open(ClaimBook& book, const NodeId& lender) {
  return book.open(lender, make_get()).value().claim;
}

TEST(ClaimBook, OpensAClaimWithEverythingTheLenderNeeds) {
  ClaimBook book;
  const NodeId lender = node_named(1);
  const GetPtr get = make_get();
  const wire::Claim claim = book.open(lender, get).value();
  EXPECT_EQ(claim.claim, get->claim);
  EXPECT_NE(claim.claim, 0U);
  EXPECT_EQ(get->stage, GetStage::claiming);
  EXPECT_EQ(get->peer, lender);
  EXPECT_EQ(claim.name_space, "n");
  EXPECT_EQ(claim.from_stage, "f");
  EXPECT_EQ(claim.to_stage, "t");
  EXPECT_EQ(claim.key, "k");
  EXPECT_EQ(claim.reader, "r");
  EXPECT_EQ(claim.generation, 9U);
  EXPECT_EQ(claim.flags, wire::Claim::kWantView);
  EXPECT_GT(claim.wait_ms, 0U);
  EXPECT_LE(claim.wait_ms, 5002U);
  EXPECT_EQ(claim.settled_below, claim.claim);
  EXPECT_EQ(book.find(lender, claim.claim), get);
  EXPECT_EQ(book.find(node_named(2), claim.claim), nullptr);
}

TEST(ClaimBook, AGetThatMustNotWaitSaysSo) {
  ClaimBook book;
  const GetPtr get = make_get();
  get->options.wait = false;
  EXPECT_EQ(book.open(node_named(1), get)->wait_ms, 0U);
}

TEST(ClaimBook, ADeadlineThatHasPassedStillWaitsAMoment) {
  ClaimBook book;
  EXPECT_GT(book.open(node_named(1), make_get(std::chrono::seconds(-1)))->wait_ms, 0U)
      << "0 would mean something else";
}

TEST(ClaimBook, SettledBelowIsTheOldestOpenClaim) {
  ClaimBook book;
  const NodeId lender = node_named(1);
  const std::uint64_t first = open(book, lender);
  const std::uint64_t second = open(book, lender);
  const std::uint64_t third = open(book, lender);
  EXPECT_EQ(book.settled_below(lender), first);
  book.settle(lender, second);
  EXPECT_EQ(book.settled_below(lender), first);
  book.close_with(lender, first, wire::Consumed{.claim = first, .lease = 5});
  EXPECT_EQ(book.settled_below(lender), first) << "the lender has not settled it yet";
  book.settle(lender, first);
  EXPECT_EQ(book.settled_below(lender), third);
  book.settle(lender, third);
  EXPECT_GT(book.settled_below(lender), third);
}

TEST(ClaimBook, NumbersAreNeverUsedTwice) {
  ClaimBook book;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<std::uint64_t> numbers;
  for (std::uint8_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::uint64_t number = open(book, node_named(t % 2));
        const std::lock_guard lock(mutex);
        numbers.insert(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(numbers.size(), 800U);
  EXPECT_EQ(book.gets(), 800U);
}

TEST(ClaimBook, ALastWordReplacesTheGetAndIsRepeated) {
  ClaimBook book;
  const NodeId lender = node_named(1);
  const std::uint64_t claim = open(book, lender);
  book.close_with(lender, claim, wire::Release{.claim = claim, .lease = 3});
  EXPECT_EQ(book.find(lender, claim), nullptr);
  EXPECT_TRUE(book.known(lender, claim));
  EXPECT_EQ(book.gets(), 0U);
  const auto entries = book.entries(lender);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<wire::Release>(entries[0].last_word.value()));
  book.settle(lender, claim);
  EXPECT_FALSE(book.known(lender, claim));
  book.settle(lender, claim);  // repeated: harmless
}

TEST(ClaimBook, ForgetsALenderWhole) {
  ClaimBook book;
  const GetPtr get = make_get();
  ASSERT_TRUE(book.open(node_named(1), get).has_value());
  open(book, node_named(2));
  EXPECT_EQ(book.lenders().size(), 2U);
  const auto gone = book.forget(node_named(1));
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].get, get);
  EXPECT_TRUE(book.entries(node_named(1)).empty());
  EXPECT_EQ(book.gets(), 1U);
}

TEST(ClaimBook, KnowsWhetherLastWordsAreUnsettled) {
  ClaimBook book;
  const NodeId lender = node_named(1);
  const std::uint64_t claim = open(book, lender);
  EXPECT_FALSE(book.has_last_words(lender));
  book.close_with(lender, claim, wire::Consumed{.claim = claim, .lease = 5});
  EXPECT_TRUE(book.has_last_words(lender));
  book.settle(lender, claim);
  EXPECT_FALSE(book.has_last_words(lender));
}

TEST(ClaimBook, AClosedBookEndsItsGetsAndOpensNoMore) {
  ClaimBook book;
  Oneshot<Result<Got>> outcome = Oneshot<Result<Got>>::make();
  auto get = std::make_shared<GetOperation>(Source::at("h:1", key_named("k")), GetOptions(Deadline::now()),
                                            std::move(outcome.promise));
  ASSERT_TRUE(book.open(node_named(1), get).has_value());
  get.reset();
  book.close();
  EXPECT_TRUE(outcome.future.finished());
  EXPECT_FALSE(outcome.future.ready());
  EXPECT_FALSE(book.open(node_named(1), make_get()).has_value());
  EXPECT_EQ(book.gets(), 0U);
}

}  // namespace
}  // namespace stagewire::test
