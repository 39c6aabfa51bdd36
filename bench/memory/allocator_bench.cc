// The pool's allocator against first fit under a connector's traffic: KV caches of up to 195 MB that live
// shortly, among many small payloads, some of which live long. Single-threaded, fixed seed. Counters:
// whole = largest free range / free bytes (mean; 1 is unfragmented), failed = requests without memory,
// fragmented = those of them for which enough bytes were free in all.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "memory/allocator.h"
#include "memory/first_fit.h"

namespace stagewire::bench {
namespace {

constexpr std::uint64_t kPool = 1ULL << 30U;
// Bytes of one token's keys and values: 28 layers × K and V × 4 heads × 128 × 2 bytes.
constexpr std::uint64_t kTokenBytes = 28ULL * 2 * 4 * 128 * 2;

class Tlsf {
 public:
  explicit Tlsf(std::uint64_t size) : allocator_(size) {}
  using Allocation = Allocator::Allocation;
  std::optional<Allocation> allocate(std::uint64_t size) { return allocator_.allocate(size); }
  void release(const Allocation& a) { allocator_.release(a.slot, a.offset, a.stamp); }
  std::uint64_t used() const { return allocator_.used(); }
  std::uint64_t largest_free() const { return allocator_.largest_free(); }

 private:
  Allocator allocator_;
};

struct Traffic {
  double large_share;      // of requests
  std::size_t small_live;  // small payloads alive at most
  std::size_t large_live;  // KV caches alive at most
};

struct Request {
  std::uint64_t size;
  bool large;
};

Request next_request(std::mt19937_64& random, const Traffic& traffic) {
  std::uniform_real_distribution<double> unit(0, 1);
  if (unit(random) < traffic.large_share) return {kTokenBytes * (3000 + random() % 401), true};
  // 256 B to 1 MiB, each power of two as likely as the next.
  return {static_cast<std::uint64_t>(std::exp2(8 + 12 * unit(random))), false};
}

template <typename A>
void run_traffic(benchmark::State& state, const Traffic& traffic) {
  double whole = 0;
  std::uint64_t samples = 0;
  std::uint64_t failed = 0;
  std::uint64_t fragmented = 0;
  A allocator(kPool);
  std::mt19937_64 random(1);
  std::vector<typename A::Allocation> small;
  std::vector<typename A::Allocation> large;
  // Released at random, so that a few small payloads live very long; KV caches go in order.
  const auto release_small = [&] {
    std::swap(small[random() % small.size()], small.back());
    allocator.release(small.back());
    small.pop_back();
  };
  for (auto _ : state) {
    const Request request = next_request(random, traffic);
    auto& live = request.large ? large : small;
    if (live.size() >= (request.large ? traffic.large_live : traffic.small_live)) {
      if (request.large) {
        allocator.release(large.front());
        large.erase(large.begin());
      } else {
        release_small();
      }
    }
    if (const auto got = allocator.allocate(request.size)) {
      live.push_back(*got);
    } else {
      ++failed;
      if (kPool - allocator.used() >= request.size) ++fragmented;
    }
    if (random() % 64 == 0 && allocator.used() < kPool) {
      whole += static_cast<double>(allocator.largest_free()) / static_cast<double>(kPool - allocator.used());
      ++samples;
    }
  }
  state.counters["whole"] = whole / static_cast<double>(std::max<std::uint64_t>(samples, 1));
  state.counters["failed"] = static_cast<double>(failed);
  state.counters["fragmented"] = static_cast<double>(fragmented);
  state.counters["used"] = static_cast<double>(allocator.used()) / static_cast<double>(kPool);
}

// Three KV caches (3,000 to 3,400 tokens) and 2,000 small payloads: 75 % of the pool.
constexpr Traffic kBusy{0.02, 2'000, 3};
// Four KV caches and 1,000 small payloads: 80 % of the pool, where the sizes of the caches hardly fit at all.
constexpr Traffic kFull{0.02, 1'000, 4};
// Small payloads alone, until nothing more fits.
constexpr Traffic kSmall{0.0, 8'000, 0};

constexpr std::int64_t kOperations = 400'000;

void BM_Tlsf(benchmark::State& state, const Traffic& traffic) {
  run_traffic<Tlsf>(state, traffic);
}
void BM_FirstFit(benchmark::State& state, const Traffic& traffic) {
  run_traffic<FirstFit>(state, traffic);
}

BENCHMARK_CAPTURE(BM_Tlsf, busy, kBusy)->Iterations(kOperations);
BENCHMARK_CAPTURE(BM_FirstFit, busy, kBusy)->Iterations(kOperations);
BENCHMARK_CAPTURE(BM_Tlsf, full, kFull)->Iterations(kOperations);
BENCHMARK_CAPTURE(BM_FirstFit, full, kFull)->Iterations(kOperations);
BENCHMARK_CAPTURE(BM_Tlsf, small, kSmall)->Iterations(kOperations);
BENCHMARK_CAPTURE(BM_FirstFit, small, kSmall)->Iterations(kOperations);

}  // namespace
}  // namespace stagewire::bench

BENCHMARK_MAIN();
