// The faults case: peers are killed with SIGKILL, and the time until what waits for them fails with a typed
// error is measured, on one host and over TCP, for claims that wait and for reads that run. See bench.h.
#include <csignal>
#include <map>
#include <poll.h>
#include <thread>
#include <utility>

#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {

constexpr std::uint64_t kReadBytes = 64ULL << 20;

struct Outcome {
  double seconds = 0;
  std::string kind;
};

// One peer's life and death. With `reading`, a transfer runs when it is killed, else a claim waits.
Result<Outcome> kill_one(const Bench& bench, Way way, bool reading) {
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair,
                   Pair::start(bench.pair({{"publish_pool_size", reading ? "80MiB" : "2MiB"},
                                           {"receive_pool_size", reading ? "80MiB" : "2MiB"}},
                                          way)));
  Source source = pair->at_peer("never");
  if (reading) {
    STAGEWIRE_TRY(pair->make_buffer(1, kReadBytes));
    STAGEWIRE_ASSIGN(source, pair->publish("read", 1, kReadBytes));
  }
  GetHandle handle = pair->node().get_async(source, pair->get_options(Placement::copy));
  if (reading) {
    // Long enough for the read to run, far too short for it to end.
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  } else {
    STAGEWIRE_TRY(pair->peer().call({"wait-claims", "1"}));
  }
  const int fd = handle.fd();
  const auto start = std::chrono::steady_clock::now();
  ::kill(pair->peer().pid(), SIGKILL);
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, 60'000) != 1)
    return Error(ErrorKind::deadline_exceeded, "a get of a killed peer did not end within a minute");
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Result<Got> got = handle.take();
  if (got.ok()) {
    STAGEWIRE_TRY(check_payload(got->payload, kReadBytes, 1));
    outcome.kind = "complete";
  } else {
    outcome.kind = to_string(got.error().kind());
  }
  return outcome;
}

Result<Figure> kills(const Bench& bench, Way way) {
  const unsigned count = bench.options.kills != 0 ? bench.options.kills : bench.options.quick ? 3 : 100;
  Samples times;
  std::map<std::string, std::uint64_t> kinds;
  for (unsigned i = 0; i < count; ++i) {
    bench.progress.say(std::string("faults ") + (way == Way::tcp ? "over TCP" : "on one host") + ": kill " +
                       std::to_string(i + 1) + " of " + std::to_string(count));
    // On one host a read survives its sender: the memory is mapped. So only claims are waited with there.
    STAGEWIRE_ASSIGN(const Outcome outcome, kill_one(bench, way, way == Way::tcp && i % 2 == 1));
    ++kinds[outcome.kind];
    if (outcome.kind != "complete") times.push_back(outcome.seconds);
  }
  Figure figure;
  figure.work = std::string("killed peer → typed error, ") + (way == Way::tcp ? "TCP" : "one host") + ": p99";
  figure.measured = time_text(percentile(times, 0.99));
  figure.beside = "p50 " + time_text(median(times)) + " of " + std::to_string(times.size());
  figure.value = percentile(times, 0.99);
  figure.target = Target::at_most(1, "s");
  Json outcomes = Json::object();
  for (const auto& [kind, number] : kinds) outcomes.set(kind, number);
  figure.detail.set("kills", count).set("outcomes", std::move(outcomes)).set("times", times_json(times));
  return figure;
}

}  // namespace

Result<std::vector<Figure>> bench_faults(const Bench& bench) {
  STAGEWIRE_ASSIGN(Figure same_host, kills(bench, Way::same_host));
  STAGEWIRE_ASSIGN(Figure tcp, kills(bench, Way::tcp));
  return std::vector<Figure>{std::move(same_host), std::move(tcp)};
}

}  // namespace stagewire::tools
