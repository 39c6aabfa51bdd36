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
constexpr unsigned kGets = 50;
// So many that the operation is measured, and not how much the other pair's turn has left in the caches.
constexpr unsigned kCycles = 2000;
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

  Samples gets;  // the median of each burst
  Samples all_gets;
  Samples puts;
  Samples all_puts;

  // A burst of gets, and one of puts with their withdrawal.
  Status operate(bool counts) {
    Samples burst;
    for (unsigned i = 0; i < kGets; ++i) {
      double seconds = 0;
      STAGEWIRE_TRY(pair->get(source, Placement::copy, seconds));
      burst.push_back(seconds);
    }
    STAGEWIRE_ASSIGN(const Fields cycle,
                     pair->peer().call({"cycle", std::to_string(kCycles), std::to_string(kSmall)}));
    if (!counts) return {};
    gets.push_back(median(burst));
    all_gets.insert(all_gets.end(), burst.begin(), burst.end());
    Samples cycles;
    for (const std::string& nanoseconds : cycle) cycles.push_back(std::stod(nanoseconds) * 1e-9);
    puts.push_back(median(cycles));
    all_puts.insert(all_puts.end(), cycles.begin(), cycles.end());
    return {};
  }
};

Figure cost_figure(const char* operation, const Samples& loaded, const Samples& all_loaded,
                   const Samples& empty, const Samples& all_empty) {
  Figure figure;
  figure.work = std::string(operation) + ", 10,000 keys, 256 claims";
  figure.measured = time_text(median(loaded));
  figure.beside = "empty node " + time_text(median(empty));
  const Samples pair_ratios = ratios(loaded, empty);
  figure.value = median(pair_ratios);
  figure.target = Target::at_most(1.2);
  figure.detail.set("bytes", kSmall)
      .set("stagewire", times_json(all_loaded))
      .set("baseline", times_json(all_empty));
  figure.detail.set("ratios", numbers_json(pair_ratios));
  return figure;
}

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

// CPU time of one wake-up by a timer, and nothing else, on a CPU that sleeps in between: on a virtual machine
// most of what an idle process costs.
double bare_wake(const Bench& bench) {
  constexpr std::chrono::milliseconds kApart{500};
  const unsigned wakes = bench.options.quick ? 2 : 10;
  bench.progress.say("scale: bare wake-ups");
  const std::int64_t before = cpu_nanoseconds();
  for (unsigned i = 0; i < wakes; ++i) std::this_thread::sleep_for(kApart);
  return static_cast<double>(cpu_nanoseconds() - before) * 1e-9 / wakes;
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

  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("scale", round, rounds);
    for (unsigned half = 0; half < 2; ++half)
      STAGEWIRE_TRY(((round + half) % 2 == 0 ? loaded : empty).operate(round >= bench.warm_up()));
  }
  empty.pair.reset();
  STAGEWIRE_ASSIGN(const double idle, idle_share(bench, *loaded.pair));
  const auto broken =
      std::count_if(waiting.begin(), waiting.end(), [](const GetHandle& h) { return h.done(); });
  if (broken != 0)
    return Error(ErrorKind::internal, std::to_string(broken) + " of the waiting claims ended early");
  loaded.pair.reset();
  const double wake = bare_wake(bench);

  Figure cpu;
  cpu.work = "idle with heartbeats: CPU of a process";
  cpu.measured = time_text(idle) + "/s";
  cpu.beside = "bare wake " + time_text(wake);
  cpu.value = idle * 100;
  cpu.target = Target::at_most(0.1, "%");
  cpu.detail.set("bare_wake_seconds", wake);
  cpu.detail.set("seconds", bench.options.quick ? 1.0 : bench.options.idle_seconds);
  return std::vector<Figure>{
      cost_figure("get", loaded.gets, loaded.all_gets, empty.gets, empty.all_gets),
      cost_figure("put + withdraw", loaded.puts, loaded.all_puts, empty.puts, empty.all_puts), cpu};
}

}  // namespace stagewire::tools
