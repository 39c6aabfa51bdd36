// See stress.h.
#include "process/support/stress.h"

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "process/support/pattern.h"

namespace stagewire::test {

namespace {

// Both processes derive the same pattern from thread and round.
Pattern pattern_for(std::uint64_t thread, std::uint64_t round) {
  std::mt19937_64 random(thread * 1'000'003 + round);
  static constexpr std::uint64_t kSizes[] = {0, 100, 8192, 9000, 300'000, 3'000'000};
  const std::uint64_t limit = kSizes[random() % std::size(kSizes)];
  return {.seed = thread * 100'000 + round + 1,
          .size = limit == 0 ? 0 : random() % limit,
          .parts = 1 + random() % 4};
}

}  // namespace

StressResult run_stress(Node& node, const Stress& stress) {
  StressResult result;
  std::atomic<std::uint64_t> good{0};
  std::mutex mutex;
  const auto report = [&](const std::string& problem) {
    const std::lock_guard lock(mutex);
    result.problem = problem;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < stress.threads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 0; round < stress.rounds; ++round) {
        const Pattern pattern = pattern_for(thread, round);
        const std::string name = std::to_string(thread) + "/" + std::to_string(round);
        if (const Result<Ticket> put = node.put(key_named(stress.own_prefix + name), make_payload(pattern));
            !put.ok())
          report(put.error().to_string());
        GetOptions options(Deadline::in(std::chrono::seconds(50)));
        options.placement = round % 2 == 0 ? Placement::view : Placement::copy;
        const Result<Got> got =
            node.get(Source::at(stress.other, key_named(stress.other_prefix + name)), std::move(options));
        if (!got.ok()) {
          report(got.error().to_string());
        } else if (const std::string wrong = mismatch(got->payload, pattern); !wrong.empty()) {
          report(name + ": " + wrong);
        } else {
          ++good;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  result.good = good;
  return result;
}

}  // namespace stagewire::test
