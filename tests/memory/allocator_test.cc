// The range allocator against a reference model, its bounds, and its detection of releases that are not due.
#include "memory/allocator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace stagewire {
namespace {

using Allocation = Allocator::Allocation;
using Release = Allocator::Release;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

Release give_back(Allocator& allocator, const Allocation& a) {
  return allocator.release(a.slot, a.offset, a.stamp);
}

TEST(Allocator, RoundsToTheGranularityAndAligns) {
  Allocator allocator(kMiB);
  const auto a = allocator.allocate(1);
  const auto b = allocator.allocate(257);
  const auto c = allocator.allocate(0);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->size, 256U);
  EXPECT_EQ(b->size, 512U);
  EXPECT_EQ(c->size, 256U);
  for (const auto& each : {*a, *b, *c}) EXPECT_EQ(each.offset % 256, 0U);
  EXPECT_EQ(allocator.used(), 1024U);
  EXPECT_EQ(allocator.live(), 3U);
}

TEST(Allocator, GivesAllOfItselfAtOnce) {
  for (const std::uint64_t size :
       {std::uint64_t{256}, 3 * kKiB, kMiB, 1000 * kMiB, std::uint64_t{1} << 44U}) {
    Allocator allocator(size);
    EXPECT_EQ(allocator.largest_free(), size);
    const auto all = allocator.allocate(size);
    ASSERT_TRUE(all) << size;
    EXPECT_EQ(all->offset, 0U);
    EXPECT_EQ(allocator.largest_free(), 0U);
    EXPECT_FALSE(allocator.allocate(1));
    EXPECT_EQ(give_back(allocator, *all), Release::ok);
    EXPECT_EQ(allocator.largest_free(), size);
    EXPECT_TRUE(allocator.consistent());
  }
}

TEST(Allocator, RefusesWhatItCanNeverHold) {
  Allocator allocator(kMiB + 100);
  EXPECT_EQ(allocator.size(), kMiB);
  EXPECT_FALSE(allocator.allocate(kMiB + 1));
  EXPECT_FALSE(allocator.allocate(~std::uint64_t{0}));
  EXPECT_FALSE(Allocator(0).allocate(0));
  EXPECT_FALSE(Allocator(255).allocate(1));
}

TEST(Allocator, DetectsDoubleStaleAndWrongReleases) {
  Allocator allocator(kMiB);
  const auto first = allocator.allocate(kKiB);
  ASSERT_TRUE(first);
  EXPECT_EQ(allocator.release(first->slot, first->offset + 256, first->stamp), Release::unknown);
  EXPECT_EQ(allocator.release(first->slot, first->offset, first->stamp + 1), Release::unknown);
  EXPECT_EQ(allocator.release(first->slot, first->offset, 0), Release::unknown);
  EXPECT_EQ(allocator.release(first->slot + 1000, first->offset, first->stamp), Release::unknown);
  EXPECT_EQ(allocator.used(), kKiB);
  EXPECT_EQ(give_back(allocator, *first), Release::ok);
  EXPECT_EQ(give_back(allocator, *first), Release::stale);

  // The same range again, under another stamp: the old one must not free it.
  std::vector<Allocation> later;
  while (const auto next = allocator.allocate(kKiB)) later.push_back(*next);
  ASSERT_EQ(later.size(), 1024U);
  EXPECT_EQ(give_back(allocator, *first), Release::stale);
  EXPECT_EQ(allocator.used(), kMiB);
  for (const Allocation& each : later) EXPECT_EQ(give_back(allocator, each), Release::ok);
  for (const Allocation& each : later) EXPECT_EQ(give_back(allocator, each), Release::stale);
  EXPECT_EQ(allocator.used(), 0U);
  EXPECT_TRUE(allocator.consistent());
}

TEST(Allocator, JoinsNeighboursWhateverTheOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    Allocator allocator(4 * kKiB);
    std::vector<Allocation> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(*allocator.allocate(kKiB));
    for (const int i : order)
      ASSERT_EQ(give_back(allocator, parts[static_cast<std::size_t>(i)]), Release::ok);
    ASSERT_EQ(allocator.largest_free(), 4 * kKiB);
    ASSERT_TRUE(allocator.consistent());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Allocator, FindsATightFitInItsOwnClass) {
  // Two holes of one size class; the request fits the larger alone.
  Allocator allocator(64 * kMiB);
  const auto small_hole = allocator.allocate(4 * kMiB);
  const auto wall = allocator.allocate(kMiB);
  const auto large_hole = allocator.allocate(4 * kMiB + 64 * kKiB);
  const auto rest = allocator.allocate(allocator.largest_free());
  ASSERT_TRUE(small_hole && wall && large_hole && rest);
  EXPECT_EQ(give_back(allocator, *large_hole), Release::ok);
  EXPECT_EQ(give_back(allocator, *small_hole), Release::ok);
  EXPECT_EQ(allocator.largest_free(), 4 * kMiB + 64 * kKiB);
  const auto exact = allocator.allocate(4 * kMiB);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->offset, small_hole->offset);
  const auto fit = allocator.allocate(4 * kMiB + 64 * kKiB);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->offset, large_hole->offset);
}

// What a correct allocator has to look like from outside: the live ranges, and the gaps between them.
class Model {
 public:
  explicit Model(std::uint64_t size) : size_(size) {}

  void add(const Allocation& a) {
    ASSERT_LE(a.offset + a.size, size_);
    const auto after = live_.lower_bound(a.offset);
    if (after != live_.end()) {
      ASSERT_LE(a.offset + a.size, after->first);
    }
    if (after != live_.begin()) {
      ASSERT_LE(std::prev(after)->first + std::prev(after)->second, a.offset);
    }
    live_.emplace(a.offset, a.size);
    used_ += a.size;
  }
  void remove(const Allocation& a) {
    ASSERT_EQ(live_.at(a.offset), a.size);
    live_.erase(a.offset);
    used_ -= a.size;
  }
  std::uint64_t used() const { return used_; }
  std::uint64_t largest_gap() const {
    std::uint64_t largest = 0;
    std::uint64_t at = 0;
    for (const auto& [offset, size] : live_) {
      largest = std::max(largest, offset - at);
      at = offset + size;
    }
    return std::max(largest, size_ - at);
  }

 private:
  std::uint64_t size_;
  std::uint64_t used_ = 0;
  std::map<std::uint64_t, std::uint64_t> live_;
};

struct Traffic {
  const char* name;
  std::uint64_t pool;
  std::uint64_t largest;
  unsigned seed;
};

class AllocatorTraffic : public testing::TestWithParam<Traffic> {};

TEST_P(AllocatorTraffic, AgreesWithTheModel) {
  const Traffic traffic = GetParam();
  Allocator allocator(traffic.pool);
  Model model(traffic.pool);
  std::mt19937_64 random(traffic.seed);
  std::vector<Allocation> live;
  std::vector<Allocation> gone;
  std::uniform_real_distribution<double> exponent(0, std::log2(static_cast<double>(traffic.largest)));
  for (int step = 0; step < 20'000; ++step) {
    // Phases that fill and phases that drain, so that every level of occupancy is seen.
    const bool fill = (step / 500) % 2 == 0 ? random() % 4 != 0 : random() % 4 == 0;
    if (fill || live.empty()) {
      const auto size = static_cast<std::uint64_t>(std::exp2(exponent(random)));
      const std::uint64_t before = allocator.largest_free();
      const auto a = allocator.allocate(size);
      const std::uint64_t rounded = std::max<std::uint64_t>((size + 255) / 256 * 256, 256);
      ASSERT_EQ(a.has_value(), rounded <= before) << "size " << size << " largest_free " << before;
      if (!a) {
        // The promise of the header: only a request within 1/32 of the largest gap may miss it.
        ASSERT_GT(rounded + rounded / 32 + 256, model.largest_gap());
        continue;
      }
      ASSERT_EQ(a->size, rounded);
      ASSERT_NO_FATAL_FAILURE(model.add(*a));
      live.push_back(*a);
    } else {
      const std::size_t which = random() % live.size();
      std::swap(live[which], live.back());
      ASSERT_EQ(give_back(allocator, live.back()), Release::ok);
      ASSERT_NO_FATAL_FAILURE(model.remove(live.back()));
      gone.push_back(live.back());
      live.pop_back();
    }
    ASSERT_EQ(allocator.used(), model.used());
    ASSERT_EQ(allocator.live(), live.size());
    ASSERT_LE(allocator.largest_free(), model.largest_gap());
    if (!gone.empty()) {
      ASSERT_EQ(give_back(allocator, gone[random() % gone.size()]), Release::stale);
    }
    if (step % 250 == 0) {
      ASSERT_TRUE(allocator.consistent()) << step;
    }
  }
  for (const Allocation& a : live) ASSERT_EQ(give_back(allocator, a), Release::ok);
  EXPECT_TRUE(allocator.consistent());
  EXPECT_EQ(allocator.largest_free(), allocator.size());
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, AllocatorTraffic,
    testing::Values(Traffic{"tiny", 64 * kKiB, 8 * kKiB, 1}, Traffic{"small", 4 * kMiB, kMiB, 2},
                    Traffic{"odd", 1'000'192, 300'000, 3}, Traffic{"connector", 1024 * kMiB, 200 * kMiB, 4},
                    Traffic{"huge", std::uint64_t{1} << 44U, std::uint64_t{1} << 42U, 5}),
    [](const auto& each) { return each.param.name; });

TEST(Allocator, LargestFreeIsExactlyWhatARequestMeets) {
  std::mt19937_64 random(6);
  Allocator allocator(16 * kMiB);
  std::vector<Allocation> live;
  for (int step = 0; step < 3'000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      if (const auto a = allocator.allocate(1 + random() % (200 * kKiB))) live.push_back(*a);
    } else {
      const std::size_t which = random() % live.size();
      ASSERT_EQ(give_back(allocator, live[which]), Release::ok);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const std::uint64_t largest = allocator.largest_free();
    EXPECT_FALSE(allocator.allocate(largest + 1));
    if (largest == 0) continue;
    const auto probe = allocator.allocate(largest);
    ASSERT_TRUE(probe);
    ASSERT_EQ(give_back(allocator, *probe), Release::ok);
  }
}

}  // namespace
}  // namespace stagewire
