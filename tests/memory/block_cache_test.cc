#include "memory/block_cache.h"

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "forked_child.h"

namespace stagewire {
namespace {

TEST(BlockCache, GivesWhatWasGivenBackToTheNextOfItsSizeClass) {
  const auto cache = BlockCache::make();
  const std::byte* first = nullptr;
  {
    BlockCache::Block block = cache->take(3000);
    first = block.data();
    EXPECT_EQ(block.bytes().size(), 3000U);
  }
  EXPECT_EQ(cache->kept(), 1U);
  EXPECT_NE(cache->take(2048).data(), first) << "another class";
  BlockCache::Block again = cache->take(4096);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(again.bytes().size(), 4096U);
}

TEST(BlockCache, EverySizeHasRoomForItsBytes) {
  const auto cache = BlockCache::make();
  for (const std::size_t size : {1U, 63U, 64U, 65U, 128U, 129U, 8191U, 8192U, 8193U, 100'000U}) {
    for (int round = 0; round < 2; ++round) {
      BlockCache::Block block = cache->take(size);
      ASSERT_NE(block.data(), nullptr);
      std::memset(block.data(), 0x5a, size);  // the address sanitizer watches
      EXPECT_EQ(block.bytes().size(), size);
    }
  }
  EXPECT_EQ(cache->take(0).bytes().size(), 0U);
}

TEST(BlockCache, KeepsABoundedNumber) {
  const auto cache = BlockCache::make();
  std::vector<BlockCache::Block> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(cache->take(100));
  blocks.clear();
  EXPECT_EQ(cache->kept(), 64U);
  {
    const BlockCache::Block large = cache->take(BlockCache::kLargest + 1);
  }
  EXPECT_EQ(cache->kept(), 64U);
}

TEST(BlockCache, ABlockMovesAndOutlivesTheCachesOwner) {
  auto cache = BlockCache::make();
  BlockCache::Block first = cache->take(10);
  BlockCache::Block second = cache->take(20);
  std::byte* const kept = first.data();
  second = std::move(first);
  EXPECT_EQ(second.data(), kept);
  EXPECT_EQ(second.bytes().size(), 10U);
  EXPECT_EQ(cache->kept(), 1U) << "what `second` held";
  cache.reset();
  std::memset(second.data(), 1, 10);
}

TEST(BlockCache, ThreadsTakeAndGiveBackAtOnce) {
  const auto cache = BlockCache::make();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 2000; ++i) {
        BlockCache::Block block = cache->take(500);
        std::memset(block.data(), t, 500);
        for (const std::byte byte : block.bytes()) ASSERT_EQ(byte, static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache->kept(), 4U);
}

TEST(BlockCacheFork, AChildsCopyOfABlockDoesNothing) {
  const auto cache = BlockCache::make();
  auto block = std::make_unique<BlockCache::Block>(cache->take(100));
  EXPECT_EQ(test::run_in_child([&] {
              block.reset();
              return 0;
            }),
            0);
  block.reset();
  EXPECT_EQ(cache->kept(), 1U);
}

}  // namespace
}  // namespace stagewire
