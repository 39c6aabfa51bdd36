// Pool and Buffer: what callers are promised about memory, order, deadlines and errors.
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <stagewire/memory/pool.h>

#include "memory/forked_child.h"
#include "memory/memfd.h"

namespace stagewire {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kPoolSize = 64 * kKiB;
// A guard against hanging, far above what any of these waits takes.
constexpr auto kLong = 60s;

std::shared_ptr<Pool> make_pool(std::uint64_t size = kPoolSize, PoolUse use = PoolUse::publish) {
  PoolOptions options;
  options.name = "test pool";
  options.use = use;
  options.size = size;
  options.touch_in_background = false;
  auto pool = Pool::create(options);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

Buffer take(const std::shared_ptr<Pool>& pool, std::size_t size, std::string label = "taken") {
  auto buffer = pool->allocate(size, std::move(label), Deadline::now());
  EXPECT_TRUE(buffer.ok()) << buffer.error();
  return std::move(buffer).value();
}

// Collects what the callbacks of allocate_async got.
struct Outcome {
  std::optional<Result<Buffer>> result;
  Pool::AllocationDone done() {
    return [this](Result<Buffer> r) {
      EXPECT_FALSE(result.has_value()) << "called twice";
      result.emplace(std::move(r));
    };
  }
  bool granted() const { return result.has_value() && result->ok(); }
  bool failed(ErrorKind kind) const {
    return result.has_value() && !result->ok() && result->error().kind() == kind;
  }
};

TEST(Pool, GivesAlignedWritableRanges) {
  const auto pool = make_pool();
  const Buffer a = take(pool, 1000);
  const Buffer b = take(pool, 1);
  for (const Buffer* buffer : {&a, &b}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % kBufferAlignment, 0U);
    EXPECT_EQ(buffer->data(), pool->base() + buffer->offset());
    EXPECT_TRUE(pool->contains(buffer->data(), buffer->size()));
    std::memset(buffer->data(), 1, buffer->size());
  }
  EXPECT_EQ(a.size(), 1000U);
  EXPECT_EQ(a.bytes().size(), 1000U);
  EXPECT_EQ(a.pool(), pool);
  EXPECT_EQ(pool->stats().used, 1024U + 256U);
  EXPECT_EQ(pool->stats().buffers, 2U);
}

TEST(Pool, GivesAnAddressForNothing) {
  const auto pool = make_pool();
  const Buffer a = take(pool, 0);
  const Buffer b = take(pool, 0);
  EXPECT_TRUE(a);
  EXPECT_EQ(a.size(), 0U);
  EXPECT_NE(a.data(), nullptr);
  EXPECT_NE(a.data(), b.data());
}

TEST(Pool, ContainsOnlyItself) {
  const auto pool = make_pool();
  EXPECT_TRUE(pool->contains(pool->base(), pool->size()));
  EXPECT_TRUE(pool->contains(pool->base() + pool->size(), 0));
  EXPECT_FALSE(pool->contains(pool->base(), pool->size() + 1));
  EXPECT_FALSE(pool->contains(pool->base() + 1, pool->size()));
  EXPECT_FALSE(pool->contains(pool->base() + 1, ~std::size_t{0}));
  EXPECT_FALSE(pool->contains(nullptr, 1));
}

TEST(Pool, RefusesWhatItCannotBe) {
  PoolOptions options;
  options.size = 0;
  auto none = Pool::create(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind(), ErrorKind::invalid_argument);
  options.size = (std::uint64_t{1} << 44U) + 1;
  auto vast = Pool::create(options);
  ASSERT_FALSE(vast.ok());
  EXPECT_EQ(vast.error().kind(), ErrorKind::invalid_argument);
  options.size = kPoolSize;
  options.kind = MemoryKind{MemoryKind::Type::cuda, 2};
  auto device = Pool::create(options);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(device.error().message(), HasSubstr("cuda:2"));
}

TEST(Pool, RoundsItsSizeToPages) {
  const auto pool = make_pool(kPoolSize - 100);
  EXPECT_EQ(pool->size(), kPoolSize);
  EXPECT_EQ(take(pool, kPoolSize).size(), kPoolSize);
}

TEST(Pool, SealsWhatPeersMayReadAndHidesTheRest) {
  const auto publish = make_pool();
  ASSERT_GE(publish->memfd(), 0);
  EXPECT_EQ(::fcntl(publish->memfd(), F_GET_SEALS) & required_seals(), required_seals());
  EXPECT_EQ(make_pool(kPoolSize, PoolUse::receive)->memfd(), -1);
}

TEST(Pool, TouchesItsMemoryWithoutHarm) {
  PoolOptions options;
  options.size = std::uint64_t{64} << 20U;
  const auto pool = std::move(Pool::create(options)).value();
  const Buffer buffer = take(pool, pool->size());
  std::memset(buffer.data(), 0x33, buffer.size());
  while (pool->occupancy().touched != pool->size()) std::this_thread::yield();
  for (std::size_t at = 0; at < buffer.size(); at += 4096) ASSERT_EQ(buffer.data()[at], std::byte{0x33});
}

TEST(Pool, MayGoWhileItIsBeingTouched) {
  PoolOptions options;
  options.size = std::uint64_t{4} << 30U;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Pool::create(options).ok());
}

TEST(Pool, SaysAtOnceThatARequestIsTooLarge) {
  const auto pool = make_pool();
  for (const std::size_t size : {kPoolSize + 1, ~std::size_t{0}}) {
    const auto result = pool->allocate(size, "vast", Deadline::in(kLong));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind(), ErrorKind::too_large);
    EXPECT_THAT(result.error().message(), HasSubstr("test pool"));
  }
  EXPECT_EQ(pool->stats().failed, 2U);
}

TEST(Pool, NamesTheLargestAndOldestHoldersWhenExhausted) {
  const auto pool = make_pool();
  std::vector<Buffer> held;
  held.push_back(take(pool, 1 * kKiB, "first"));
  held.push_back(take(pool, 2 * kKiB, "second"));
  held.push_back(take(pool, 3 * kKiB, "third"));
  held.push_back(take(pool, 1 * kKiB, "nobody"));
  held.push_back(take(pool, 20 * kKiB, "third largest"));
  held.push_back(take(pool, 4 * kKiB, "nobody"));
  held.push_back(take(pool, 22 * kKiB, "largest"));
  const auto result = pool->allocate(50 * kKiB, "wants", Deadline::now());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind(), ErrorKind::pool_exhausted);
  const std::string& text = result.error().message();
  for (const char* part : {"test pool", "50 KiB", "53 KiB", "64 KiB", "7 buffers", "'largest'",
                           "'third largest'", "'first'", "'second'", "'third'"})
    EXPECT_THAT(text, HasSubstr(part));

  const PoolStats stats = pool->stats();
  ASSERT_EQ(stats.largest.size(), 3U);
  EXPECT_EQ(stats.largest[0].label, "largest");
  EXPECT_EQ(stats.largest[0].bytes, 22 * kKiB);
  EXPECT_EQ(stats.largest[1].label, "third largest");
  ASSERT_EQ(stats.oldest.size(), 3U);
  EXPECT_EQ(stats.oldest[0].label, "first");
  EXPECT_EQ(stats.oldest[1].label, "second");
  EXPECT_EQ(stats.oldest[2].label, "third");
  EXPECT_GE(stats.oldest[0].age, stats.oldest[2].age);
  EXPECT_TRUE(pool->occupancy().largest.empty());
}

TEST(Pool, BoundsLabels) {
  const auto pool = make_pool();
  const Buffer held = take(pool, kPoolSize, std::string(100'000, 'x'));
  const auto result = pool->allocate(1, "wants", Deadline::now());
  ASSERT_FALSE(result.ok());
  EXPECT_LT(result.error().message().size(), 1000U);
}

TEST(Pool, CountsOccupancy) {
  const auto pool = make_pool();
  Buffer a = take(pool, 10 * kKiB);
  Buffer b = take(pool, 20 * kKiB);
  EXPECT_EQ(pool->stats().used, 30 * kKiB);
  EXPECT_EQ(pool->stats().largest_free, kPoolSize - 30 * kKiB);
  a.release();
  EXPECT_FALSE(a);
  EXPECT_EQ(a.data(), nullptr);
  a.release();
  b = take(pool, 1);
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.used, 256U);
  EXPECT_EQ(stats.buffers, 1U);
  EXPECT_EQ(stats.peak_used, 30 * kKiB);
  EXPECT_EQ(stats.bad_releases, 0U);
}

TEST(Buffer, MovesItsRange) {
  const auto pool = make_pool();
  Buffer a = take(pool, kKiB);
  std::byte* const data = a.data();
  Buffer b(std::move(a));
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): a moved-from Buffer is empty, which is promised
  EXPECT_EQ(b.data(), data);
  Buffer& alias = b;
  b = std::move(alias);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(pool->stats().buffers, 1U);
  b = Buffer();
  EXPECT_EQ(pool->stats().buffers, 0U);
}

TEST(Buffer, KeepsThePoolAlive) {
  auto pool = make_pool();
  const std::weak_ptr<Pool> watch = pool;
  Buffer buffer = take(pool, kKiB);
  pool.reset();
  ASSERT_FALSE(watch.expired());
  std::memset(buffer.data(), 1, buffer.size());
  buffer.release();
  EXPECT_TRUE(watch.expired());
}

TEST(PoolWaiting, ASmallRequestNeverOvertakesALargeOne) {
  const auto pool = make_pool();
  Buffer half = take(pool, kPoolSize / 2);
  Outcome large;
  Outcome small;
  pool->allocate_async(kPoolSize, "large", large.done());
  pool->allocate_async(kKiB, "small", small.done());
  EXPECT_FALSE(large.result);
  EXPECT_FALSE(small.result);
  // Fits, but two wait before it.
  const auto third = pool->allocate(kKiB, "third", Deadline::now());
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(third.error().message(), HasSubstr("2 earlier requests"));
  EXPECT_EQ(pool->stats().waiting, 2U);
  half.release();
  ASSERT_TRUE(large.granted());
  EXPECT_FALSE(small.result);
  large.result.reset();
  ASSERT_TRUE(small.granted());
  EXPECT_EQ(pool->stats().waiting, 0U);
}

TEST(PoolWaiting, ServesInOrderOfArrival) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  std::vector<int> order;
  std::vector<Buffer> kept;
  for (int i = 0; i < 5; ++i) {
    pool->allocate_async(kKiB, "waiter", [&, i](Result<Buffer> result) {
      order.push_back(i);
      kept.push_back(std::move(result).value());
    });
  }
  all.release();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
}

TEST(PoolWaiting, ABlockedCallerIsWokenByARelease) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  auto waiting =
      std::async(std::launch::async, [&] { return pool->allocate(kKiB, "waits", Deadline::in(kLong)); });
  while (pool->occupancy().waiting == 0) std::this_thread::yield();
  all.release();
  EXPECT_TRUE(waiting.get().ok());
}

TEST(PoolWaiting, EndsAtTheDeadlineAndLeavesNothingBehind) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  const auto deadline = Deadline::in(20ms);
  const auto result = pool->allocate(kKiB, "waits", deadline);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind(), ErrorKind::pool_exhausted);
  EXPECT_TRUE(deadline.passed());
  EXPECT_EQ(pool->stats().waiting, 0U);
  EXPECT_EQ(pool->stats().failed, 1U);
  all.release();
  EXPECT_EQ(pool->stats().used, 0U);
}

TEST(PoolWaiting, AnAsyncRequestIsCancelledOnce) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  Outcome outcome;
  const auto id = pool->allocate_async(kKiB, "waits", outcome.done());
  EXPECT_TRUE(pool->cancel(id));
  EXPECT_TRUE(outcome.failed(ErrorKind::pool_exhausted));
  EXPECT_FALSE(pool->cancel(id));
  EXPECT_FALSE(pool->cancel(id + 1000));
  all.release();
  Outcome immediate;
  const auto done_already = pool->allocate_async(kKiB, "fits", immediate.done());
  EXPECT_TRUE(immediate.granted());
  EXPECT_FALSE(pool->cancel(done_already));
}

TEST(PoolWaiting, CancellingTheFirstLetsTheNextIn) {
  const auto pool = make_pool();
  const Buffer half = take(pool, kPoolSize / 2);
  Outcome large;
  Outcome small;
  Outcome behind;
  const auto large_id = pool->allocate_async(kPoolSize, "large", large.done());
  pool->allocate_async(kKiB, "small", small.done());
  const auto behind_id = pool->allocate_async(kKiB, "behind", behind.done());
  EXPECT_TRUE(pool->cancel(behind_id));
  EXPECT_FALSE(small.result);
  EXPECT_TRUE(pool->cancel(large_id));
  EXPECT_TRUE(large.failed(ErrorKind::pool_exhausted));
  EXPECT_TRUE(small.granted());
}

TEST(PoolWaiting, CloseEndsEveryWait) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  Outcome outcome;
  pool->allocate_async(kKiB, "waits", outcome.done());
  auto blocked =
      std::async(std::launch::async, [&] { return pool->allocate(kKiB, "waits", Deadline::in(kLong)); });
  while (pool->occupancy().waiting != 2) std::this_thread::yield();
  pool->close();
  EXPECT_TRUE(outcome.failed(ErrorKind::closed));
  const auto result = blocked.get();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind(), ErrorKind::closed);
  std::memset(all.data(), 1, all.size());
  all.release();
  const auto later = pool->allocate(1, "late", Deadline::in(kLong));
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().kind(), ErrorKind::closed);
  pool->close();
}

TEST(PoolWaiting, CallbacksMayUseThePool) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  Outcome inner;
  bool ran = false;
  pool->allocate_async(kPoolSize, "outer", [&](Result<Buffer> result) {
    EXPECT_EQ(pool->stats().buffers, 1U);
    pool->allocate_async(kKiB, "inner", inner.done());
    EXPECT_FALSE(inner.result);
    result = Error(ErrorKind::cancelled, "dropped");
    ran = true;
  });
  all.release();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(inner.granted());
}

TEST(PoolWaiting, ALongChainNeedsNoDeepStack) {
  const auto pool = make_pool();
  Buffer all = take(pool, kPoolSize);
  // Each waiter takes everything and drops it at once, which grants the next.
  constexpr int kChain = 100'000;
  int served = 0;
  for (int i = 0; i < kChain; ++i)
    pool->allocate_async(kPoolSize, "link",
                         [&served](Result<Buffer> result) { served += result.ok() ? 1 : 0; });
  all.release();
  EXPECT_EQ(served, kChain);
  EXPECT_EQ(pool->stats().used, 0U);
}

TEST(PoolWaiting, APoolThatGoesTellsItsWaiters) {
  auto pool = make_pool();
  Outcome outcome;
  std::optional<Buffer> all = take(pool, kPoolSize);
  pool->allocate_async(kKiB, "waits", outcome.done());
  pool.reset();
  EXPECT_FALSE(outcome.result);
  // The last buffer's release grants the waiter, whose buffer then is the last.
  all.reset();
  EXPECT_TRUE(outcome.granted());
}

TEST(PoolFork, HandlesAreDeadInAChildAndUnharmedInTheParent) {
  const auto pool = make_pool();
  Buffer buffer = take(pool, kKiB);
  buffer.data()[0] = std::byte{5};
  std::optional<std::shared_ptr<Pool>> own = make_pool();
  std::optional<Buffer> held = take(*own, kKiB);
  const int result = test::run_in_child([&] {
    const auto refused = pool->allocate(1, "child", Deadline::in(kLong));
    if (refused.ok() || refused.error().kind() != ErrorKind::forked) return 1;
    if (buffer.data()[0] != std::byte{5}) return 2;
    buffer.release();
    own.reset();
    held.reset();
    if (pool->cancel(1)) return 3;
    pool->close();
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(pool->stats().buffers, 1U);
  EXPECT_EQ(buffer.data()[0], std::byte{5});
  EXPECT_TRUE(pool->allocate(1, "parent", Deadline::now()).ok());
}

TEST(PoolFork, AChildMayDropAPoolThatIsBeingTouched) {
  PoolOptions options;
  options.size = std::uint64_t{1} << 30U;
  auto pool = std::move(Pool::create(options)).value();
  EXPECT_EQ(test::run_in_child([&] {
              pool.reset();
              return 0;
            }),
            0);
}

TEST(MemoryKind, HasText) {
  EXPECT_EQ(to_string(MemoryKind::host()), "host");
  EXPECT_EQ(to_string(MemoryKind{MemoryKind::Type::cuda, 3}), "cuda:3");
}

}  // namespace
}  // namespace stagewire
