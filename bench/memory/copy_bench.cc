// Copies of a KV cache of 195 MB: the kernels on one thread, and the engine, against plain memcpy. Every
// iteration runs memcpy and the candidate one after the other on buffers that neither has touched for long,
// so that the ratio holds on a busy machine too. Counters are medians: GB/s of both, and the ratio (above 1:
// faster than memcpy). The buffers lie in shared memory of ordinary pages, as pools do.
#include <algorithm>
#include <barrier>
#include <benchmark/benchmark.h>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

#include "memory/copy.h"
#include "memory/copy_kernels.h"
#include "memory/memfd.h"

namespace stagewire::bench {
namespace {

// 28 layers × K and V × 4 heads × 128 × 3,400 tokens × 2 bytes; one tensor is 1/56 of it.
constexpr std::size_t kTensor = std::size_t{4} * 128 * 3400 * 2;
constexpr std::size_t kTotal = 56 * kTensor;
// Enough pairs that a buffer has left the caches when its turn comes again.
constexpr std::size_t kPairs = 3;
constexpr int kRounds = 21;

struct Pair {
  SealedMemory from;
  SealedMemory to;
};

std::vector<Pair> make_pairs() {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    Pair pair{create_sealed("bench", kTotal, false).value(), create_sealed("bench", kTotal, false).value()};
    std::memset(pair.from.mapping.data(), 1, kTotal);
    std::memset(pair.to.mapping.data(), 2, kTotal);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

// Cuts a pair into ranges of `size` bytes.
std::vector<CopyRange> cut(const Pair& pair, std::size_t size) {
  std::vector<CopyRange> ranges;
  for (std::size_t at = 0; at < kTotal; at += size)
    ranges.push_back(
        {pair.from.mapping.data() + at, pair.to.mapping.data() + at, std::min(size, kTotal - at)});
  return ranges;
}

// memcpy on several threads that are kept between runs, each with one call over its share.
class MemcpyTeam {
 public:
  explicit MemcpyTeam(unsigned threads) : threads_(threads), barrier_(threads) {
    for (unsigned i = 1; i < threads; ++i) members_.emplace_back([this, i] { work(i); });
  }
  MemcpyTeam(const MemcpyTeam&) = delete;
  MemcpyTeam& operator=(const MemcpyTeam&) = delete;
  ~MemcpyTeam() {
    pair_ = nullptr;
    barrier_.arrive_and_wait();
    for (std::thread& member : members_) member.join();
  }

  void copy(const Pair& pair) {
    pair_ = &pair;
    barrier_.arrive_and_wait();
    share(0);
    barrier_.arrive_and_wait();
  }

 private:
  void share(unsigned index) {
    const std::size_t from = kTotal / threads_ * index;
    const std::size_t to = index + 1 == threads_ ? kTotal : kTotal / threads_ * (index + 1);
    std::memcpy(pair_->to.mapping.data() + from, pair_->from.mapping.data() + from, to - from);
  }
  void work(unsigned index) {
    for (;;) {
      barrier_.arrive_and_wait();
      if (pair_ == nullptr) return;
      share(index);
      barrier_.arrive_and_wait();
    }
  }

  unsigned threads_;
  const Pair* pair_ = nullptr;
  std::barrier<> barrier_;
  std::vector<std::thread> members_;
};

// Waiting for memory is time of the CPU, so copies on one thread are measured by it, undisturbed by other
// processes; those on several threads by the wall.
enum class Measure { cpu_time, wall_time };

double now(Measure measure) {
  timespec time{};
  ::clock_gettime(measure == Measure::cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds(Measure measure, const std::function<void()>& run) {
  const double start = now(measure);
  run();
  return now(measure) - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Runs `baseline` and `candidate` in turn, the order swapped every round, each on the next pair.
void compare(benchmark::State& state, Measure measure, const std::vector<Pair>& pairs,
             const std::function<void(std::size_t)>& baseline,
             const std::function<void(std::size_t)>& candidate) {
  std::vector<double> base;
  std::vector<double> ours;
  std::vector<double> ratios;
  std::size_t next = 0;
  int round = 0;
  for (auto _ : state) {
    double times[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round) % 2;
      const std::size_t pair = next++ % pairs.size();
      times[which] = seconds(measure, [&] { (which == 0 ? baseline : candidate)(pair); });
    }
    ++round;
    base.push_back(times[0]);
    ours.push_back(times[1]);
    ratios.push_back(times[0] / times[1]);
    state.SetIterationTime(times[1]);
  }
  const auto rate = [](double time) { return static_cast<double>(kTotal) / time / 1e9; };
  state.counters["memcpy_GB/s"] = rate(median(base));
  state.counters["GB/s"] = rate(median(ours));
  state.counters["ratio"] = median(ratios);
}

void BM_Kernel(benchmark::State& state, const char* name, std::size_t range) {
  const StreamingKernel kernel = kernel_named(name);
  if (kernel.name != name) {
    state.SkipWithError("this CPU lacks it");
    return;
  }
  const std::vector<Pair> pairs = make_pairs();
  std::vector<std::vector<CopyRange>> lists;
  for (const Pair& pair : pairs) lists.push_back(cut(pair, range));
  const auto run = [&](std::size_t pair, CopyKernel copy) {
    for (const CopyRange& r : lists[pair]) copy(r.to, r.from, r.size);
    copy_fence();
  };
  compare(
      state, Measure::cpu_time, pairs, [&](std::size_t pair) { run(pair, plain_kernel().copy); },
      [&](std::size_t pair) { run(pair, kernel.copy); });
}

void BM_Engine(benchmark::State& state, unsigned threads, std::size_t range) {
  const std::vector<Pair> pairs = make_pairs();
  std::vector<std::vector<CopyRange>> lists;
  for (const Pair& pair : pairs) lists.push_back(cut(pair, range));
  MemcpyTeam team(threads);
  CopyEngine engine(threads);
  compare(
      state, threads == 1 ? Measure::cpu_time : Measure::wall_time, pairs,
      [&](std::size_t pair) { team.copy(pairs[pair]); }, [&](std::size_t pair) { engine.copy(lists[pair]); });
}

void rounds(benchmark::internal::Benchmark* bench) {
  bench->Iterations(kRounds)->UseManualTime()->Unit(benchmark::kMillisecond);
}

constexpr std::size_t kKvPage = 16'384;

BENCHMARK_CAPTURE(BM_Kernel, avx2_one_range, "avx2", kTotal)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Kernel, avx2_56_tensors, "avx2", kTensor)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Kernel, avx2_16KiB_pages, "avx2", kKvPage)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Kernel, avx512_one_range, "avx512", kTotal)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Kernel, avx512_56_tensors, "avx512", kTensor)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Kernel, avx512_16KiB_pages, "avx512", kKvPage)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Engine, 1_thread_one_range, 1U, kTotal)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Engine, 1_thread_56_tensors, 1U, kTensor)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Engine, 2_threads_one_range, 2U, kTotal)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Engine, 2_threads_56_tensors, 2U, kTensor)->Apply(rounds);
BENCHMARK_CAPTURE(BM_Engine, 2_threads_16KiB_pages, 2U, kKvPage)->Apply(rounds);

}  // namespace
}  // namespace stagewire::bench

BENCHMARK_MAIN();
