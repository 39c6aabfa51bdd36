// The view case: what a get costs when nothing is copied, for sizes from 1 MiB to 1 GiB, beside a bare
// ping-pong over a Unix socket. See bench.h.
#include <algorithm>
#include <map>

#include "base/units.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {
constexpr std::uint64_t kMiB = 1ULL << 20;
// Gets per round and size; the round counts with their median, so that one interruption does not decide it.
constexpr unsigned kBurst = 20;
}  // namespace

Result<std::vector<Figure>> bench_view(const Bench& bench) {
  const std::uint64_t kv = bench.kv_bytes();
  std::vector<std::uint64_t> sizes{kMiB, 16 * kMiB, 64 * kMiB, kv, 256 * kMiB, 1024 * kMiB};
  if (bench.options.quick) sizes = {kMiB, kv, 64 * kMiB};
  const std::uint64_t largest = sizes.back();
  // All sizes are the first bytes of one buffer.
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair,
                   Pair::start(bench.pair({{"publish_pool_size", std::to_string(largest + 64 * kMiB)},
                                           {"receive_pool_size", std::to_string(64 * kMiB)},
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
  std::map<std::uint64_t, Samples> views;
  std::map<std::uint64_t, Samples> all;
  const unsigned rounds = bench.rounds();
  for (unsigned round = 0; round < bench.warm_up() + rounds; ++round) {
    bench.round("view", round, bench.warm_up() + rounds);
    const bool counts = round >= bench.warm_up();
    STAGEWIRE_ASSIGN(const Samples trips, client->round_trips(2 * kBurst));
    if (counts) pings.push_back(median(trips));
    for (const std::uint64_t size : sizes) {
      Samples burst;
      for (unsigned i = 0; i < kBurst; ++i) {
        double seconds = 0;
        STAGEWIRE_ASSIGN(const Got got, pair->get(sources[size], Placement::view, seconds));
        if (!got.view) return Error(ErrorKind::internal, "no view was given: " + got.placement_note);
        burst.push_back(seconds);
      }
      if (!counts) continue;
      views[size].push_back(median(burst));
      all[size].insert(all[size].end(), burst.begin(), burst.end());
    }
  }
  for (const std::uint64_t size : sizes) {
    double seconds = 0;
    STAGEWIRE_ASSIGN(const Got got, pair->get(sources[size], Placement::view, seconds));
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
  flat.detail.set("sizes", std::move(by_size));
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
