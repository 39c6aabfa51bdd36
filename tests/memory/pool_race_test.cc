// Many threads on one pool: every request ends exactly once, no range is held twice, nothing is left over.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <stagewire/memory/pool.h>

namespace stagewire {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kPoolSize = 256 * kKiB;
constexpr int kThreads = 4;

std::shared_ptr<Pool> make_pool() {
  PoolOptions options;
  options.size = kPoolSize;
  options.touch_in_background = false;
  return std::move(Pool::create(options)).value();
}

// Writes the owner's mark over the range and looks whether it is still there: another owner would show.
void use(const Buffer& buffer, unsigned char mark) {
  std::memset(buffer.data(), mark, buffer.size());
  std::this_thread::yield();
  for (const std::byte b : buffer.bytes()) ASSERT_EQ(static_cast<unsigned char>(b), mark);
}

void run_threads(const std::function<void(unsigned)>& body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(PoolRace, BlockingCallersShareWithoutOverlap) {
  const auto pool = make_pool();
  std::atomic<int> served{0};
  run_threads([&](unsigned self) {
    std::mt19937 random(self + 1);
    for (int i = 0; i < 500; ++i) {
      // Sums of requests exceed the pool, so that waiting is common.
      auto buffer = pool->allocate(1 + random() % (kPoolSize / 2), "race", Deadline::in(60s));
      ASSERT_TRUE(buffer.ok()) << buffer.error();
      use(*buffer, static_cast<unsigned char>(self + 1));
      ++served;
    }
  });
  EXPECT_EQ(served, kThreads * 500);
  EXPECT_EQ(pool->stats().used, 0U);
  EXPECT_EQ(pool->stats().waiting, 0U);
}

TEST(PoolRace, DeadlinesRaceReleases) {
  const auto pool = make_pool();
  std::atomic<int> granted{0};
  std::atomic<int> exhausted{0};
  run_threads([&](unsigned self) {
    std::mt19937 random(self + 10);
    for (int i = 0; i < 500; ++i) {
      auto buffer =
          pool->allocate(kPoolSize / 2 + 1, "race", Deadline::in(std::chrono::microseconds(random() % 200)));
      if (buffer.ok()) {
        use(*buffer, static_cast<unsigned char>(self + 1));
        ++granted;
      } else {
        ASSERT_EQ(buffer.error().kind(), ErrorKind::pool_exhausted);
        ++exhausted;
      }
    }
  });
  EXPECT_EQ(granted + exhausted, kThreads * 500);
  EXPECT_GT(granted, 0);
  EXPECT_EQ(pool->stats().used, 0U);
  EXPECT_EQ(pool->stats().failed, static_cast<std::uint64_t>(exhausted));
}

TEST(PoolRace, CancelRacesGrant) {
  const auto pool = make_pool();
  std::atomic<int> ended{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> refused{0};
  run_threads([&](unsigned self) {
    std::mt19937 random(self + 20);
    for (int i = 0; i < 500; ++i) {
      const auto id = pool->allocate_async(1 + random() % kPoolSize, "race", [&](Result<Buffer> result) {
        ++ended;
        if (!result.ok()) ++refused;
      });
      if (random() % 2 == 0) std::this_thread::yield();
      if (pool->cancel(id)) ++cancelled;
    }
  });
  EXPECT_EQ(ended, kThreads * 500);
  EXPECT_EQ(refused, cancelled);
  EXPECT_EQ(pool->stats().used, 0U);
}

TEST(PoolRace, CloseRacesEverything) {
  for (int round = 0; round < 20; ++round) {
    auto pool = make_pool();
    std::atomic<int> ended{0};
    std::thread closer([&] { pool->close(); });
    run_threads([&](unsigned) {
      for (int i = 0; i < 50; ++i) {
        pool->allocate_async(kPoolSize / 2, "async", [&](Result<Buffer>) { ++ended; });
        auto buffer = pool->allocate(kPoolSize / 2, "blocking", Deadline::in(60s));
        if (!buffer.ok()) {
          ASSERT_EQ(buffer.error().kind(), ErrorKind::closed);
        }
        ++ended;
      }
    });
    closer.join();
    EXPECT_EQ(ended, kThreads * 100);
    EXPECT_EQ(pool->stats().used, 0U);
  }
}

}  // namespace
}  // namespace stagewire
