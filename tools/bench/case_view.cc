// The view case: what a get costs when nothing is copied, for sizes from 1 MiB to 1 GiB, beside a bare
// ping-pong over a Unix socket. See bench.h.
#include <algorithm>
#include <map>
#include <thread>

#include "base/units.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {
constexpr std::uint64_t kMiB = 1ULL << 20;
// Gets per round and size; the round counts with their median, so that one interruption does not decide it.
constexpr unsigned kBurst = 20;

// Seconds of one get. A view is given back a moment after it was dropped, so that the largest ones can exceed
// the sender's share for views when they follow each other this closely: such a get is refused, and tried
// again.
Result<double> view_once(Pair& pair, const Source& source, unsigned& refused) {
  constexpr unsigned kTries = 200;
  for (unsigned i = 0; i < kTries; ++i) {
    double seconds = 0;
    const Result<Got> got = pair.get(source, Placement::view, seconds);
    if (got.ok() && got->view) return seconds;
    // As a copy it would not fit into the receive pool.
    if (!got.ok() && got.error().kind() != ErrorKind::too_large) return got.error();
    ++refused;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return Error(ErrorKind::internal, "no view was given");
}
}  // namespace

Result<std::vector<Figure>> bench_view(const Bench& bench) {
  const std::uint64_t kv = bench.kv_bytes();
  std::vector<std::uint64_t> sizes{kMiB, 1024 * kMiB, 16 * kMiB, 256 * kMiB, 64 * kMiB, kv};
  if (bench.options.quick) sizes = {kMiB, 64 * kMiB, kv};
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  // All sizes are the first bytes of one buffer; the pool is larger only because the share for views is its
  // size.
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair,
                   Pair::start(bench.pair({{"publish_pool_size", std::to_string(2 * largest)},
                                           {"receive_pool_size", "1MiB"},
                                           {"touch_pools", "false"},
                                           {"view_share_percent", "100"}},
                                          Way::same_host)));
  STAGEWIRE_TRY(pair->make_buffer(1, largest));
  std::map<std::uint64_t, Source> sources;
  for (const std::uint64_t size : sizes) {
    STAGEWIRE_ASSIGN(sources[size], pair->publish("view" + std::to_string(size), 1, size));
  }
  STAGEWIRE_ASSIGN(const Fields echo, pair->peer().call({"echo", "unix"}));
  STAGEWIRE_ASSIGN(const std::unique_ptr<EchoClient> client, EchoClient::connect(echo.at(0)));

  Samples pings;
  unsigned refused = 0;
  std::map<std::uint64_t, Samples> views;
  std::map<std::uint64_t, Samples> all;
  const unsigned rounds = bench.rounds();
  for (unsigned round = 0; round < bench.warm_up() + rounds; ++round) {
    bench.round("view", round, bench.warm_up() + rounds);
    const bool counts = round >= bench.warm_up();
    STAGEWIRE_ASSIGN(const Samples trips, client->round_trips(2 * kBurst));
    if (counts) pings.push_back(median(trips));
    std::map<std::uint64_t, Samples> bursts;
    for (unsigned i = 0; i < kBurst; ++i) {
      for (const std::uint64_t size : sizes) {
        STAGEWIRE_ASSIGN(const double seconds, view_once(*pair, sources[size], refused));
        bursts[size].push_back(seconds);
      }
    }
    if (!counts) continue;
    for (const auto& [size, burst] : bursts) {
      views[size].push_back(median(burst));
      all[size].insert(all[size].end(), burst.begin(), burst.end());
    }
  }
  for (const std::uint64_t size : sizes) {
    // Long enough for the view before to have been given back.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    double ignored = 0;
    STAGEWIRE_ASSIGN(const Got got, pair->get(sources[size], Placement::view, ignored));
    STAGEWIRE_TRY(check_payload(got.payload, size, 1));
  }

  double fastest = median(views[sizes.front()]);
  double slowest = fastest;
  Json by_size = Json::object();
  for (const std::uint64_t size : sizes) {
    fastest = std::min(fastest, median(views[size]));
    slowest = std::max(slowest, median(views[size]));
    by_size.set(size == kv ? bench.kv_text() : format_size(size), times_json(all[size]));
  }
  Figure flat;
  flat.work = "view, " + format_size(sizes.front()) + " to " + format_size(largest) + ": flat";
  flat.measured = time_text(slowest);
  flat.beside = "fastest size " + time_text(fastest);
  flat.value = slowest / fastest;
  flat.target = Target::at_most(2);
  flat.detail.set("sizes", std::move(by_size)).set("refused", refused);
  Figure row;
  row.work = "view, " + bench.kv_text();
  row.measured = time_text(median(views[kv]));
  row.beside = "Unix ping-pong " + time_text(median(pings));
  const Samples pair_ratios = ratios(views[kv], pings);
  row.value = median(pair_ratios);
  row.target = Target::at_most(3);
  row.detail.set("stagewire", times_json(all[kv])).set("baseline", times_json(pings));
  row.detail.set("ratios", numbers_json(pair_ratios));
  return std::vector<Figure>{flat, row};
}

}  // namespace stagewire::tools
