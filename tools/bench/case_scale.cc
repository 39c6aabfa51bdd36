// The scale case: what an operation costs beside 10,000 published keys and 256 waiting claims, against a pair
// of nodes that have nothing else, and what CPU time a loaded pair uses while nothing happens. See bench.h.
#include <algorithm>
#include <thread>
#include <utility>

#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {

constexpr unsigned kKeys = 10'000;
constexpr unsigned kClaims = 256;
constexpr unsigned kBurst = 50;
constexpr std::uint64_t kSmall = 4096;

struct Loadable {
  std::unique_ptr<Pair> pair;
  Source source;  // a small payload for any number of readers

  static Result<Loadable> start(const Bench& bench) {
    Loadable it;
    STAGEWIRE_ASSIGN(
        it.pair,
        Pair::start(bench.pair(
            {{"publish_pool_size", "64MiB"}, {"receive_pool_size", "16MiB"}, {"inline_limit", "8KiB"}},
            Way::same_host)));
    STAGEWIRE_TRY(it.pair->make_buffer(1, kSmall));
    STAGEWIRE_ASSIGN(it.source, it.pair->publish("small", 1, kSmall));
    return it;
  }

  Samples get_seconds;
  Samples put_seconds;

  // Seconds of one get, and of one put with its withdrawal, added up; each stands for a burst.
  Result<double> operation() {
    Samples gets;
    for (unsigned i = 0; i < kBurst; ++i) {
      double seconds = 0;
      STAGEWIRE_TRY(pair->get(source, Placement::copy, seconds));
      gets.push_back(seconds);
    }
    STAGEWIRE_ASSIGN(const Fields cycle,
                     pair->peer().call({"cycle", std::to_string(kBurst), std::to_string(kSmall)}));
    get_seconds.push_back(median(gets));
    put_seconds.push_back(std::stod(cycle.at(0)) * 1e-9 / kBurst);
    return get_seconds.back() + put_seconds.back();
  }
};

Result<double> idle_share(const Bench& bench, Pair& pair) {
  bench.progress.say("scale: watching an idle pair for " +
                     std::to_string(static_cast<int>(bench.options.idle_seconds)) + " s");
  const double seconds =
      bench.options.quick ? std::min(1.0, bench.options.idle_seconds) : bench.options.idle_seconds;
  // What was just done settles first: late acknowledgements, memory being touched.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  STAGEWIRE_ASSIGN(const Fields peer_before, pair.peer().call({"usage"}));
  const std::int64_t own_before = cpu_nanoseconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::int64_t own = cpu_nanoseconds() - own_before;
  STAGEWIRE_ASSIGN(const Fields peer_after, pair.peer().call({"usage"}));
  const std::int64_t peer = std::stoll(peer_after.at(0)) - std::stoll(peer_before.at(0));
  return static_cast<double>(std::max(own, peer)) * 1e-9 / seconds;
}

}  // namespace

Result<std::vector<Figure>> bench_scale(const Bench& bench) {
  STAGEWIRE_ASSIGN(Loadable empty, Loadable::start(bench));
  STAGEWIRE_ASSIGN(Loadable loaded, Loadable::start(bench));
  bench.progress.say("scale: publishing 10,000 keys");
  STAGEWIRE_TRY(loaded.pair->peer().call({"fill", "key", std::to_string(kKeys), std::to_string(kSmall)}));
  std::vector<Source> sources;
  std::vector<GetOptions> options;
  for (unsigned i = 0; i < kClaims; ++i) {
    sources.push_back(loaded.pair->at_peer("never" + std::to_string(i)));
    options.emplace_back(Deadline::in(std::chrono::hours(1)));
  }
  const std::vector<GetHandle> waiting = loaded.pair->node().get_many_async(sources, options);
  STAGEWIRE_TRY(loaded.pair->peer().call({"wait-claims", std::to_string(kClaims)}));

  Samples with_load;
  Samples without;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("scale", round, rounds);
    for (unsigned half = 0; half < 2; ++half) {
      const bool is_loaded = (round + half) % 2 == 0;
      STAGEWIRE_ASSIGN(const double seconds, (is_loaded ? loaded : empty).operation());
      if (round >= bench.warm_up()) (is_loaded ? with_load : without).push_back(seconds);
    }
  }
  Figure cost;
  cost.detail.set("operation", "one get, and one put with its withdrawal, of 4 KiB");
  cost.detail.set("get", Json::object()
                             .set("stagewire", times_json(loaded.get_seconds))
                             .set("baseline", times_json(empty.get_seconds)));
  cost.detail.set("put", Json::object()
                             .set("stagewire", times_json(loaded.put_seconds))
                             .set("baseline", times_json(empty.put_seconds)));
  empty.pair.reset();
  STAGEWIRE_ASSIGN(const double idle, idle_share(bench, *loaded.pair));
  const auto broken =
      std::count_if(waiting.begin(), waiting.end(), [](const GetHandle& h) { return h.done(); });
  if (broken != 0)
    return Error(ErrorKind::internal, std::to_string(broken) + " of the waiting claims ended early");

  cost.work = "operation beside 10,000 keys, 256 claims";
  cost.measured = time_text(median(with_load));
  cost.beside = "empty node " + time_text(median(without));
  const Samples pair_ratios = ratios(with_load, without);
  cost.value = median(pair_ratios);
  cost.target = Target::at_most(1.2);
  cost.detail.set("stagewire", times_json(with_load)).set("baseline", times_json(without));
  cost.detail.set("ratios", numbers_json(pair_ratios));
  Figure cpu;
  cpu.work = "the same, idle: CPU of the busier process";
  cpu.measured = time_text(idle) + "/s";
  cpu.beside = "heartbeats on";
  cpu.value = idle * 100;
  cpu.target = Target::at_most(0.1, "%");
  cpu.detail.set("seconds", bench.options.quick ? 1.0 : bench.options.idle_seconds);
  return std::vector<Figure>{cost, cpu};
}

}  // namespace stagewire::tools
