// The copy engine: right bytes whatever the cut, one completion per job, cancellation, fairness, fork.
#include "memory/copy.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <vector>

#include "memory/forked_child.h"

namespace stagewire {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr std::size_t kMiB = std::size_t{1} << 20U;

// A scatter of ranges with guard bytes between the destinations, and the check of all of it.
class Field {
 public:
  Field(const std::vector<std::size_t>& sizes, unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    source_.resize(total + 64 * sizes.size() + 64);
    for (std::size_t at = 0; at + 4 <= source_.size(); at += 4) {
      const auto word = static_cast<std::uint32_t>(random());
      std::memcpy(source_.data() + at, &word, 4);
    }
    target_.assign(total + 256 * sizes.size() + 256, kPoison);
    std::size_t from = 0;
    std::size_t to = 64;
    for (const std::size_t size : sizes) {
      from += random() % 64;
      to += 64 + random() % 64;
      ranges_.push_back({source_.data() + from, target_.data() + to, size});
      from += size;
      to += size;
    }
  }

  const std::vector<CopyRange>& ranges() const { return ranges_; }

  void check_complete() const {
    const std::byte* at = target_.data();
    for (const CopyRange& range : ranges_) {
      for (; at != range.to; ++at) ASSERT_EQ(*at, kPoison);
      ASSERT_TRUE(range.size == 0 || std::memcmp(range.to, range.from, range.size) == 0);
      at += range.size;
    }
    for (; at != target_.data() + target_.size(); ++at) ASSERT_EQ(*at, kPoison);
  }

 private:
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::vector<CopyRange> ranges_;
};

// Waits for completions of jobs; counts them.
class Completions {
 public:
  CopyEngine::Done next() {
    return [this](bool complete) {
      const std::lock_guard lock(mutex_);
      (complete ? complete_ : stopped_) += 1;
      changed_.notify_all();
    };
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete_ + stopped_ >= count; });
  }
  int complete() {
    const std::lock_guard lock(mutex_);
    return complete_;
  }
  int stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int complete_ = 0;
  int stopped_ = 0;
};

// Holds the only worker of an engine inside a completion until it is opened, so that what is queued meanwhile
// is untouched.
class HeldWorker {
 public:
  explicit HeldWorker(CopyEngine& engine) {
    engine.copy_async({{source_.data(), target_.data(), target_.size()}}, [this](bool) {
      held_.set_value();
      opened_.get_future().wait();
    });
    held_.get_future().wait();
  }
  void open() { opened_.set_value(); }

 private:
  std::vector<std::byte> source_ = std::vector<std::byte>(kMiB);
  std::vector<std::byte> target_ = std::vector<std::byte>(kMiB);
  std::promise<void> held_;
  std::promise<void> opened_;
};

std::vector<std::vector<std::size_t>> size_mixes() {
  std::vector<std::vector<std::size_t>> mixes = {
      {},
      {0},
      {1},
      {0, 0, 5, 0},
      {kMiB - 1},
      {kMiB},
      {kMiB + 1},
      {3 * kMiB + 12'345},
      {7 * kMiB, 1, 0, 2 * kMiB + 3, 17},
      std::vector<std::size_t>(500, 16'384),
      std::vector<std::size_t>(3000, 700),
      std::vector<std::size_t>(6, kMiB / 2 + 1),
  };
  std::mt19937 random(9);
  std::vector<std::size_t> mixed;
  for (int i = 0; i < 200; ++i) mixed.push_back(static_cast<std::size_t>(1) << (random() % 17));
  mixes.push_back(mixed);
  return mixes;
}

class CopyEngineTest : public testing::TestWithParam<unsigned> {};

TEST_P(CopyEngineTest, CopiesAnyMixOfSizes) {
  CopyEngine engine(GetParam());
  EXPECT_EQ(engine.threads(), GetParam());
  unsigned seed = 0;
  for (const auto& sizes : size_mixes()) {
    const Field field(sizes, ++seed);
    engine.copy(field.ranges());
    ASSERT_NO_FATAL_FAILURE(field.check_complete());
  }
}

TEST_P(CopyEngineTest, CopiesAnyMixOfSizesInTheBackground) {
  CopyEngine engine(GetParam());
  Completions completions;
  std::vector<Field> fields;
  unsigned seed = 100;
  for (const auto& sizes : size_mixes()) fields.emplace_back(sizes, ++seed);
  for (const Field& field : fields) engine.copy_async(field.ranges(), completions.next());
  completions.wait_for(static_cast<int>(fields.size()));
  EXPECT_EQ(completions.complete(), static_cast<int>(fields.size()));
  for (const Field& field : fields) ASSERT_NO_FATAL_FAILURE(field.check_complete());
}

INSTANTIATE_TEST_SUITE_P(Threads, CopyEngineTest, testing::Values(1U, 2U, 3U, 8U));

TEST(CopyEngine, ChoosesAThreadCount) {
  CopyEngine engine(0);
  EXPECT_GE(engine.threads(), 1U);
  EXPECT_LE(engine.threads(), 4U);
}

TEST(CopyEngine, SmallJobsEndBeforeTheCallReturns) {
  CopyEngine engine(2);
  const Field field({1000, 2000}, 1);
  const auto self = std::this_thread::get_id();
  bool done = false;
  engine.copy_async(field.ranges(), [&](bool complete) {
    EXPECT_TRUE(complete);
    EXPECT_EQ(std::this_thread::get_id(), self);
    done = true;
  });
  EXPECT_TRUE(done);
  ASSERT_NO_FATAL_FAILURE(field.check_complete());
}

TEST(CopyEngine, ManyCallersAtOnce) {
  CopyEngine engine(3);
  std::vector<std::thread> callers;
  for (unsigned i = 0; i < 6; ++i) {
    callers.emplace_back([&engine, i] {
      for (unsigned round = 0; round < 5; ++round) {
        const Field field({kMiB + i, 300'000, 5, 2 * kMiB}, i * 10 + round);
        engine.copy(field.ranges());
        ASSERT_NO_FATAL_FAILURE(field.check_complete());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(CopyEngine, ACancelledJobTouchesNothing) {
  CopyEngine engine(1);
  HeldWorker held(engine);
  const std::vector<std::byte> source(8 * kMiB, std::byte{1});
  std::vector<std::byte> target(8 * kMiB, kPoison);
  Completions completions;
  const auto id = engine.copy_async({{source.data(), target.data(), target.size()}}, completions.next());
  engine.cancel(id);
  engine.cancel(id);
  EXPECT_EQ(completions.stopped(), 0) << "completions run on a worker, and the only one is held";
  held.open();
  completions.wait_for(1);
  EXPECT_EQ(completions.stopped(), 1);
  for (const std::byte b : target) ASSERT_EQ(b, kPoison);
  engine.cancel(id);
}

TEST(CopyEngine, CancelRacesTheWorkers) {
  CopyEngine engine(2);
  std::vector<std::byte> source(6 * kMiB, std::byte{1});
  Completions completions;
  constexpr int kJobs = 60;
  std::vector<std::vector<std::byte>> targets(kJobs);
  std::mt19937 random(4);
  for (auto& target : targets) {
    target.assign(source.size(), kPoison);
    const auto id = engine.copy_async({{source.data(), target.data(), target.size()}},
                                      [&target, &source, next = completions.next()](bool complete) {
                                        if (complete) {
                                          EXPECT_TRUE(target == source);
                                        }
                                        // Frees the destination: the job must be over.
                                        std::vector<std::byte>().swap(target);
                                        next(complete);
                                      });
    for (unsigned spins = static_cast<unsigned>(random() % 20); spins > 0; --spins) std::this_thread::yield();
    if (random() % 4 != 0) engine.cancel(id);
  }
  completions.wait_for(kJobs);
  EXPECT_EQ(completions.complete() + completions.stopped(), kJobs);
}

TEST(CopyEngine, CancelOfTheUnknownIsIgnored) {
  CopyEngine engine(2);
  engine.cancel(0);
  engine.cancel(12'345);
  const Field field({3 * kMiB}, 1);
  engine.copy(field.ranges());
  ASSERT_NO_FATAL_FAILURE(field.check_complete());
}

TEST(CopyEngine, ASmallJobIsNotStarvedByAHugeOne) {
  CopyEngine engine(1);
  HeldWorker held(engine);
  std::vector<std::byte> source(64 * kMiB, std::byte{1});
  std::vector<std::byte> huge(64 * kMiB);
  std::vector<std::byte> small(kMiB);
  Completions completions;
  std::mutex mutex;
  std::vector<std::string> order;
  const auto log = [&](const char* name) {
    return [&, name, next = completions.next()](bool complete) {
      {
        const std::lock_guard lock(mutex);
        order.emplace_back(name);
      }
      next(complete);
    };
  };
  engine.copy_async({{source.data(), huge.data(), huge.size()}}, log("huge"));
  engine.copy_async({{source.data(), small.data(), small.size()}}, log("small"));
  held.open();
  completions.wait_for(2);
  ASSERT_EQ(order.size(), 2U);
  EXPECT_EQ(order.front(), "small");
  EXPECT_TRUE(huge == source);
}

TEST(CopyEngine, DestructionFinishesWhatWasStarted) {
  const Field a({5 * kMiB}, 1);
  const Field b({5 * kMiB}, 2);
  Completions completions;
  {
    CopyEngine engine(2);
    engine.copy_async(a.ranges(), completions.next());
    engine.copy_async(b.ranges(), completions.next());
  }
  EXPECT_EQ(completions.complete(), 2);
  ASSERT_NO_FATAL_FAILURE(a.check_complete());
  ASSERT_NO_FATAL_FAILURE(b.check_complete());
}

TEST(CopyEngine, ACompletionMayStartAnotherJob) {
  CopyEngine engine(2);
  const Field first({2 * kMiB}, 1);
  const Field second({2 * kMiB}, 2);
  Completions completions;
  engine.copy_async(first.ranges(), [&, next = completions.next()](bool complete) {
    engine.copy_async(second.ranges(), completions.next());
    next(complete);
  });
  completions.wait_for(2);
  ASSERT_NO_FATAL_FAILURE(second.check_complete());
}

// Threads of this process whose name starts with "sw-copy", and their blocked signals.
std::vector<std::string> copy_thread_masks() {
  std::vector<std::string> masks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm") >> std::ws, name);
    if (name.rfind("sw-copy-", 0) != 0) continue;
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.rfind("SigBlk:", 0) == 0) masks.push_back(line);
  }
  return masks;
}

TEST(CopyEngine, WorkersAreNamedAndTakeNoSignals) {
  CopyEngine engine(3);
  const auto masks = copy_thread_masks();
  ASSERT_EQ(masks.size(), 3U);
  // Signals 1 to 31 without SIGKILL and SIGSTOP, which nobody can block.
  for (const std::string& mask : masks)
    EXPECT_EQ(std::stoull(mask.substr(mask.find_first_not_of("\t ", 7)), nullptr, 16) & 0x7fffffffU,
              0x7ffbfeffU)
        << mask;
  sigset_t own;
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &own), 0);
  EXPECT_EQ(::sigismember(&own, SIGINT), 0) << "the caller's own mask must be as before";
}

TEST(CopyEngine, AForkedChildCopiesByItselfAndMayDropTheEngine) {
  auto engine = std::make_unique<CopyEngine>(2);
  const Field warm({3 * kMiB}, 1);
  engine->copy(warm.ranges());
  const Field field({3 * kMiB}, 2);
  EXPECT_EQ(test::run_in_child([&] {
              engine->copy(field.ranges());
              if (std::memcmp(field.ranges()[0].to, field.ranges()[0].from, field.ranges()[0].size) != 0)
                return 1;
              bool done = false;
              engine->copy_async(field.ranges(), [&](bool complete) { done = complete; });
              if (!done) return 2;
              engine->cancel(1);
              engine.reset();
              return 0;
            }),
            0);
  engine->copy(field.ranges());
  ASSERT_NO_FATAL_FAILURE(field.check_complete());
}

}  // namespace
}  // namespace stagewire
