// The TCP cases: one big get against bare sockets that move the same buffers over as many streams, and many
// gets at once against one big one. See bench.h.
#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <poll.h>
#include <sstream>
#include <utility>

#include "base/units.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {

constexpr unsigned kSlots = 3;
constexpr std::uint64_t kMiB = 1ULL << 20;

DestinationRange range_of(std::byte* data, std::uint64_t size) {
  return DestinationRange{.data = data, .size = size, .kind = MemoryKind::host()};
}

std::vector<std::string> congestion_controls() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  std::vector<std::string> names{""};
  std::string name;
  while (file >> name) names.push_back(name);
  return names;
}

// The settings with which bare streams are fastest here: congestion control first, with everything else left
// to the kernel, then the rest with the best of them.
Result<StreamSettings> best_settings(const Bench& bench, std::uint16_t port, unsigned streams,
                                     std::byte* to) {
  const std::uint64_t kv = bench.kv_bytes();
  const unsigned tries = bench.options.quick ? 1 : 5;
  StreamSettings best;
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto consider = [&](const StreamSettings& settings) -> Status {
    bench.progress.say("tcp: bare sockets with " + settings.text());
    Result<std::unique_ptr<StreamClient>> client = StreamClient::connect(port, streams, settings);
    if (!client.ok()) return {};  // a congestion control that this user may not choose
    STAGEWIRE_TRY((*client)->fetch(0, to, kv));
    Samples times;
    for (unsigned i = 0; i < tries; ++i) {
      Status status;
      times.push_back(seconds_of([&] { status = (*client)->fetch(i % kSlots, to, kv); }));
      STAGEWIRE_TRY(status);
    }
    if (median(times) < best_seconds) {
      best_seconds = median(times);
      best = settings;
    }
    return {};
  };
  for (const std::string& name : congestion_controls())
    STAGEWIRE_TRY(consider({.congestion = name, .buffer = 0, .piece = 0}));
  if (bench.options.quick) return best;
  const std::string congestion = best.congestion;
  for (const std::uint64_t piece : {std::uint64_t{0}, 256 * (kMiB >> 10U), kMiB}) {
    for (const std::uint64_t buffer : {std::uint64_t{0}, kMiB, 4 * kMiB})
      STAGEWIRE_TRY(consider({.congestion = congestion, .buffer = buffer, .piece = piece}));
  }
  if (best_seconds == std::numeric_limits<double>::infinity())
    return Error(ErrorKind::io, "no bare stream could be set up");
  return best;
}

}  // namespace

Result<std::vector<Figure>> bench_tcp(const Bench& bench) {
  const std::uint64_t kv = bench.kv_bytes();
  STAGEWIRE_ASSIGN(
      const std::unique_ptr<Pair> pair,
      Pair::start(bench.pair({{"publish_pool_size", std::to_string(kSlots * (kv + kMiB) + 32 * kMiB)},
                              {"receive_pool_size", std::to_string(16 * kMiB)}},
                             Way::tcp)));
  std::array<Source, kSlots> sources;
  std::array<Memory, kSlots> destinations;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    STAGEWIRE_TRY(pair->make_buffer(slot, kv));
    STAGEWIRE_ASSIGN(sources[slot], pair->publish("tcp" + std::to_string(slot), slot, kv));
    STAGEWIRE_ASSIGN(destinations[slot], Memory::make(kv));
  }
  STAGEWIRE_ASSIGN(const Fields stream, pair->peer().call({"stream"}));
  const auto port = static_cast<std::uint16_t>(std::stoul(stream.at(0)));
  const unsigned streams = pair->node().config().tcp_connections;
  STAGEWIRE_ASSIGN(const StreamSettings best, best_settings(bench, port, streams, destinations[0].data()));
  STAGEWIRE_ASSIGN(const std::unique_ptr<StreamClient> bare, StreamClient::connect(port, streams, best));

  Samples ours;
  Samples bares;
  unsigned turn = 0;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("tcp", round, rounds);
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned slot = turn++ % kSlots;
      double seconds = 0;
      if ((round + half) % 2 == 0) {
        STAGEWIRE_ASSIGN(const Got got, pair->get(sources[slot], Placement::into, seconds,
                                                  range_of(destinations[slot].data(), kv)));
        if (got.transport != "tcp") return Error(ErrorKind::internal, "the bytes came over " + got.transport);
        if (round >= bench.warm_up()) ours.push_back(seconds);
      } else {
        Status status;
        seconds = seconds_of([&] { status = bare->fetch(slot, destinations[slot].data(), kv); });
        STAGEWIRE_TRY(status);
        if (round >= bench.warm_up()) bares.push_back(seconds);
      }
    }
  }
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    fill_pattern(destinations[slot].data(), kv, 99);
    double ignored = 0;
    STAGEWIRE_ASSIGN(const Got got, pair->get(sources[slot], Placement::into, ignored,
                                              range_of(destinations[slot].data(), kv)));
    STAGEWIRE_TRY(check_payload(got.payload, kv, slot));
  }
  Figure figure;
  figure.work = "tcp over loopback, " + bench.kv_text() + ", " + std::to_string(streams) + " streams";
  figure.measured = rate_text(static_cast<double>(kv), median(ours));
  figure.beside = "bare sockets " + rate_text(static_cast<double>(kv), median(bares));
  const Samples pair_ratios = ratios(bares, ours);
  figure.value = median(pair_ratios);
  figure.target = Target::at_least(0.95);
  figure.detail.set("bytes", kv).set("streams", streams).set("bare_settings", best.text());
  figure.detail.set("stagewire", times_json(ours)).set("baseline", times_json(bares));
  figure.detail.set("ratios", numbers_json(pair_ratios));
  return std::vector<Figure>{figure};
}

namespace {

constexpr unsigned kGets = 32;
// Starts all gets in one call and notes when each is done. Returns the seconds until the last.
Result<double> many_at_once(Pair& pair, const std::vector<Source>& sources, std::byte* to,
                            std::uint64_t piece, Samples& latencies) {
  std::vector<GetOptions> options;
  options.reserve(kGets);
  for (unsigned i = 0; i < kGets; ++i)
    options.push_back(pair.get_options(Placement::into, range_of(to + i * piece, piece)));
  const auto start = std::chrono::steady_clock::now();
  const auto since = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<GetHandle> handles = pair.node().get_many_async(sources, options);
  std::vector<pollfd> waiting;
  waiting.reserve(handles.size());
  for (const GetHandle& handle : handles)
    waiting.push_back({.fd = handle.fd(), .events = POLLIN, .revents = 0});
  unsigned left = kGets;
  double last = 0;
  while (left != 0) {
    if (::poll(waiting.data(), waiting.size(), 60'000) <= 0)
      return Error(ErrorKind::deadline_exceeded, "not all of the gets came to an end");
    last = since();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      waiting[i].fd = -1;
      --left;
      latencies.push_back(last);
      STAGEWIRE_TRY(handles[i].take());
    }
  }
  return last;
}

}  // namespace

Result<std::vector<Figure>> bench_concurrent(const Bench& bench) {
  const std::uint64_t piece = bench.options.quick ? kMiB : 16 * kMiB;
  const std::uint64_t all = kGets * piece;
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair,
                   Pair::start(bench.pair({{"publish_pool_size", std::to_string(all + 32 * kMiB)},
                                           {"receive_pool_size", std::to_string(16 * kMiB)}},
                                          Way::tcp)));
  STAGEWIRE_TRY(pair->make_buffer(0, all));
  // The same bytes as one payload; the small ones are its first bytes, published 32 times.
  STAGEWIRE_ASSIGN(const Source big, pair->publish("big", 0, all));
  std::vector<Source> sources;
  for (unsigned i = 0; i < kGets; ++i) {
    STAGEWIRE_ASSIGN(Source source, pair->publish("small" + std::to_string(i), 0, piece));
    sources.push_back(std::move(source));
  }
  STAGEWIRE_ASSIGN(const Memory destination, Memory::make(all));
  Samples latencies;
  Samples totals;
  Samples bigs;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("concurrent", round, rounds);
    if (round == bench.warm_up()) latencies.clear();
    for (unsigned half = 0; half < 2; ++half) {
      double seconds = 0;
      if ((round + half) % 2 == 0) {
        STAGEWIRE_ASSIGN(seconds, many_at_once(*pair, sources, destination.data(), piece, latencies));
        if (round >= bench.warm_up()) totals.push_back(seconds);
      } else {
        STAGEWIRE_TRY(pair->get(big, Placement::into, seconds, range_of(destination.data(), all)));
        if (round >= bench.warm_up()) bigs.push_back(seconds);
      }
    }
  }
  fill_pattern(destination.data(), all, 99);
  Samples ignored;
  STAGEWIRE_TRY(many_at_once(*pair, sources, destination.data(), piece, ignored));
  for (unsigned i = 0; i < kGets; ++i) {
    if (!is_pattern(destination.data() + i * piece, piece, 0))
      return Error(ErrorKind::internal, "get " + std::to_string(i) + " did not bring what was published");
  }
  Figure spread;
  spread.work = "32 gets of " + format_size(piece) + " at once, tcp: p99";
  spread.measured = time_text(percentile(latencies, 0.99));
  spread.beside = "p50 " + time_text(median(latencies));
  spread.value = percentile(latencies, 0.99) / median(latencies);
  spread.target = Target::at_most(3);
  spread.detail.set("gets", times_json(latencies));
  Figure total;
  total.work = "32 gets of " + format_size(piece) + " at once, tcp: total";
  total.measured = rate_text(static_cast<double>(all), median(totals));
  total.beside = "one big get " + rate_text(static_cast<double>(all), median(bigs));
  const Samples pair_ratios = ratios(bigs, totals);
  total.value = median(pair_ratios);
  total.target = Target::at_least(0.9);
  total.detail.set("bytes", all).set("stagewire", times_json(totals)).set("baseline", times_json(bigs));
  total.detail.set("ratios", numbers_json(pair_ratios));
  return std::vector<Figure>{spread, total};
}

}  // namespace stagewire::tools
