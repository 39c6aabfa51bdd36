// The one-way case: 4 KiB from the moment a put is called in one process to the moment a waiting get returns
// in the other, beside the bare round trip of 256 bytes over a socket of the same kind. Both processes read
// the same clock (CLOCK_MONOTONIC). See bench.h.
#include <utility>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {

constexpr unsigned kBurst = 40;

Result<Figure> one_way(const Bench& bench, Way way) {
  const bool tcp = way == Way::tcp;
  STAGEWIRE_ASSIGN(
      const std::unique_ptr<Pair> pair,
      Pair::start(bench.pair({{"publish_pool_size", "16MiB"}, {"receive_pool_size", "16MiB"}}, way)));
  STAGEWIRE_ASSIGN(const Fields echo, pair->peer().call({"echo", tcp ? "tcp" : "unix"}));
  STAGEWIRE_ASSIGN(const std::unique_ptr<EchoClient> client, EchoClient::connect(echo.at(0)));
  Samples ours;
  Samples pings;
  Samples all;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round(tcp ? "oneway over TCP" : "oneway over Unix sockets", round, rounds);
    const bool counts = round >= bench.warm_up();
    for (unsigned half = 0; half < 2; ++half) {
      if ((round + half) % 2 == 0) {
        STAGEWIRE_ASSIGN(const Samples trips, client->round_trips(kBurst));
        if (counts) pings.push_back(median(trips));
        continue;
      }
      const std::string prefix = "oneway" + std::to_string(round) + ".";
      STAGEWIRE_TRY(pair->peer().send({"answer", prefix, std::to_string(kBurst)}));
      std::vector<std::int64_t> returned;
      for (unsigned i = 0; i < kBurst; ++i) {
        Result<Got> got = pair->node().get(pair->at_peer(prefix + std::to_string(i)),
                                           GetOptions(Deadline::in(std::chrono::seconds(30))));
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        if (!got.ok()) return got.error();
        returned.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
        STAGEWIRE_TRY(check_payload(got->payload, 4096, 1));
      }
      STAGEWIRE_ASSIGN(const Fields called, pair->peer().answer());
      if (called.size() != returned.size()) return Error(ErrorKind::internal, "a put is missing");
      Samples burst;
      for (std::size_t i = 0; i < returned.size(); ++i)
        burst.push_back(static_cast<double>(returned[i] - std::stoll(called[i])) * 1e-9);
      if (!counts) continue;
      ours.push_back(median(burst));
      all.insert(all.end(), burst.begin(), burst.end());
    }
  }
  Figure figure;
  figure.work = std::string("4 KiB, put → waiting get, ") + (tcp ? "TCP" : "Unix socket");
  figure.measured = time_text(median(ours));
  figure.beside = std::string(tcp ? "TCP" : "Unix") + " ping-pong " + time_text(median(pings));
  const Samples pair_ratios = ratios(ours, pings);
  figure.value = median(pair_ratios);
  figure.target = Target::at_most(tcp ? 1.5 : 2);
  figure.detail.set("stagewire", times_json(all)).set("baseline", times_json(pings));
  figure.detail.set("ratios", numbers_json(pair_ratios));
  return figure;
}

}  // namespace

Result<std::vector<Figure>> bench_one_way(const Bench& bench) {
  STAGEWIRE_ASSIGN(Figure unix_socket, one_way(bench, Way::same_host));
  STAGEWIRE_ASSIGN(Figure tcp, one_way(bench, Way::tcp));
  return std::vector<Figure>{std::move(unix_socket), std::move(tcp)};
}

}  // namespace stagewire::tools
