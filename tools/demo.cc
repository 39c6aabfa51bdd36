// demo: a KV cache of 195 MB goes from one process to another over every route, each beside this machine's
// memcpy and bare sockets, all of it measured in turn in one run. See commands.h.
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"
#include "commands.h"
#include "common/version.h"

namespace stagewire::tools {

namespace {

// Used in turn, so that nothing that is measured finds its bytes in a cache; prime to the number of rows.
constexpr unsigned kSlots = 3;
constexpr std::uint64_t kRoom = kKvBytes + (1ULL << 20);
constexpr unsigned kWarmUp = 3;

enum Row : std::size_t { view, first_read, into, copy, memcpys, tcp, bare, row_count };

struct RowText {
  const char* name;
  const char* what;
};
constexpr std::array<RowText, row_count> kRows{{
    {"shm, as a view", "get: no byte is copied"},
    {"reading all of that view", "by this process, after the get"},
    {"shm, into a given destination", "get: one parallel copy"},
    {"shm, into the receive pool", "get: the same, pool memory"},
    {"memcpy", "one call per thread"},
    {"tcp, into a given destination", "get: over loopback"},
    {"bare sockets", "as many streams"},
}};

// Everything that is measured, set up.
struct Stage {
  std::unique_ptr<Pair> local;
  std::unique_ptr<Pair> remote;
  std::array<Source, kSlots> local_sources;
  std::array<Source, kSlots> remote_sources;
  std::array<Memory, kSlots> destinations;
  std::unique_ptr<StreamClient> streams;
  std::unique_ptr<MemcpyTeam> team;
  unsigned turn = 0;

  static Result<std::unique_ptr<Stage>> set_up(const DemoOptions& options, Progress& progress);
  Result<double> measure(Row row);
  Status check();
  DestinationRange destination(unsigned slot) const {
    return {.data = destinations[slot].data(), .size = destinations[slot].size(), .kind = MemoryKind::host()};
  }
};

Result<std::unique_ptr<Stage>> Stage::set_up(const DemoOptions& options, Progress& progress) {
  auto stage = std::make_unique<Stage>();
  const std::string publish = std::to_string(kSlots * kRoom + (32U << 20U));
  progress.say("starting the other process");
  STAGEWIRE_ASSIGN(stage->local, Pair::start({.settings = options.node,
                                              .base = {{"publish_pool_size", publish},
                                                       {"receive_pool_size", std::to_string(2 * kRoom)},
                                                       {"view_share_percent", "100"}},
                                              .way = Way::same_host,
                                              .peer_cpu = {},
                                              .own_cpus = {}}));
  progress.say("starting another one that is reached by TCP");
  STAGEWIRE_ASSIGN(stage->remote,
                   Pair::start({.settings = options.node,
                                .base = {{"publish_pool_size", publish}, {"receive_pool_size", "16MiB"}},
                                .way = Way::tcp,
                                .peer_cpu = {},
                                .own_cpus = {}}));
  progress.say("making KV caches");
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    const std::string name = "kv" + std::to_string(slot);
    STAGEWIRE_TRY(stage->local->make_buffer(slot, kKvBytes));
    STAGEWIRE_TRY(stage->remote->make_buffer(slot, kKvBytes));
    STAGEWIRE_ASSIGN(stage->local_sources[slot], stage->local->publish(name, slot, kKvBytes, kKvTensors));
    STAGEWIRE_ASSIGN(stage->remote_sources[slot], stage->remote->publish(name, slot, kKvBytes, kKvTensors));
    STAGEWIRE_ASSIGN(stage->destinations[slot], Memory::make(kKvBytes));
  }
  STAGEWIRE_ASSIGN(const Fields stream, stage->remote->peer().call({"stream"}));
  STAGEWIRE_ASSIGN(stage->streams, StreamClient::connect(static_cast<std::uint16_t>(std::stoul(stream.at(0))),
                                                         stage->remote->node().config().tcp_connections, {}));
  const NodeConfig& config = stage->local->node().config();
  const auto cpus = static_cast<unsigned>(usable_cpu_list().size());
  stage->team =
      std::make_unique<MemcpyTeam>(config.copy_threads != 0 ? config.copy_threads : std::min(4U, cpus));
  return stage;
}

Result<double> Stage::measure(Row row) {
  const unsigned slot = turn++ % kSlots;
  double seconds = 0;
  Status status;
  switch (row) {
    case Row::view: {
      STAGEWIRE_ASSIGN(const Got got, local->get(local_sources[slot], Placement::view, seconds));
      if (!got.view) return Error(ErrorKind::internal, "no view was given: " + got.placement_note);
      break;
    }
    case Row::first_read: {
      STAGEWIRE_ASSIGN(const Got got, local->get(local_sources[slot], Placement::view, seconds));
      const auto* bytes = static_cast<const std::byte*>(got.payload.tensors().front().data);
      seconds = seconds_of([&] { team->read(bytes, kKvBytes); });
      break;
    }
    case Row::into:
      STAGEWIRE_TRY(local->get(local_sources[slot], Placement::into, seconds, destination(slot)));
      break;
    case Row::copy:
      STAGEWIRE_TRY(local->get(local_sources[slot], Placement::copy, seconds));
      break;
    case Row::memcpys: {
      // The very memory that the rows above read.
      STAGEWIRE_ASSIGN(const Got got, local->get(local_sources[slot], Placement::view, seconds));
      const auto* bytes = static_cast<const std::byte*>(got.payload.tensors().front().data);
      seconds = seconds_of([&] { team->copy(destinations[slot].data(), bytes, kKvBytes); });
      break;
    }
    case Row::tcp:
      STAGEWIRE_TRY(remote->get(remote_sources[slot], Placement::into, seconds, destination(slot)));
      break;
    case Row::bare:
      seconds = seconds_of([&] { status = streams->fetch(slot, destinations[slot].data(), kKvBytes); });
      STAGEWIRE_TRY(status);
      break;
    case Row::row_count:
      break;
  }
  return seconds;
}

Status Stage::check() {
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    double ignored = 0;
    STAGEWIRE_ASSIGN(const Got seen, local->get(local_sources[slot], Placement::view, ignored));
    STAGEWIRE_TRY(check_payload(seen.payload, kKvBytes, slot));
    for (const bool over_tcp : {false, true}) {
      fill_pattern(destinations[slot].data(), kKvBytes, 99);
      Pair& pair = over_tcp ? *remote : *local;
      const Source& source = over_tcp ? remote_sources[slot] : local_sources[slot];
      STAGEWIRE_ASSIGN(const Got got, pair.get(source, Placement::into, ignored, destination(slot)));
      STAGEWIRE_TRY(check_payload(got.payload, kKvBytes, slot));
    }
  }
  return {};
}

std::string percent(double part) {
  return std::to_string(std::lround(part * 100)) + " %";
}

void print_rows(const std::array<Samples, row_count>& times, unsigned threads, std::size_t streams) {
  std::printf(
      "A KV cache of 195 MB (28 layers, K and V, 4 heads of 128, 3,400 tokens, bf16) moves between two\n"
      "processes. Median and p99 of %zu; copies with %u thread%s, TCP with %zu streams.\n\n",
      times[0].size(), threads, threads == 1 ? "" : "s", streams);
  std::printf("%s%s%s%s%s%s\n", padded("route", 32).c_str(), padded("median", 10, true).c_str(),
              padded("p99", 10, true).c_str(), padded("GB/s", 8, true).c_str(),
              padded("of memcpy", 12, true).c_str(), padded("of sockets", 13, true).c_str());
  for (std::size_t row = 0; row < row_count; ++row) {
    const double middle = median(times[row]);
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.1f", static_cast<double>(kKvBytes) / middle / 1e9);
    // A view moves no bytes: a rate would say nothing.
    const bool moves = row != Row::view;
    std::printf(
        "%s%s%s%s%s%s\n", padded(kRows[row].name, 32).c_str(), padded(time_text(middle), 10, true).c_str(),
        padded(time_text(percentile(times[row], 0.99)), 10, true).c_str(),
        padded(moves ? rate : "-", 8, true).c_str(),
        padded(moves ? percent(median(ratios(times[Row::memcpys], times[row]))) : "-", 12, true).c_str(),
        padded(moves ? percent(median(ratios(times[Row::bare], times[row]))) : "-", 13, true).c_str());
  }
  std::printf("\nThe contents were compared, byte for byte, over both routes. 1 GB = 10^9 bytes.\n");
}

Result<int> demonstrate(const DemoOptions& options) {
  Progress progress(options.progress);
  STAGEWIRE_ASSIGN(const std::unique_ptr<Stage> stage, Stage::set_up(options, progress));
  std::array<Samples, row_count> times;
  for (unsigned round = 0; round < kWarmUp + options.rounds; ++round) {
    progress.say("round " + std::to_string(round + 1) + " of " + std::to_string(kWarmUp + options.rounds));
    for (std::size_t row = 0; row < row_count; ++row) {
      STAGEWIRE_ASSIGN(const double seconds, stage->measure(static_cast<Row>(row)));
      if (round >= kWarmUp) times[row].push_back(seconds);
    }
  }
  progress.say("comparing the contents");
  STAGEWIRE_TRY(stage->check());
  progress.say("");
  const unsigned threads = stage->team->threads();
  const std::size_t streams = stage->remote->node().config().tcp_connections;
  if (!options.json) {
    print_rows(times, threads, streams);
    return kExitOk;
  }
  Json rows = Json::list();
  for (std::size_t row = 0; row < row_count; ++row) {
    Json one = Json::object();
    one.set("route", kRows[row].name).set("what", kRows[row].what).set("times", times_json(times[row]));
    one.set("gigabytes_per_second",
            row == Row::view ? Json() : Json(static_cast<double>(kKvBytes) / median(times[row]) / 1e9));
    one.set("of_memcpy", row == Row::view ? Json() : Json(median(ratios(times[Row::memcpys], times[row]))));
    one.set("of_bare_sockets",
            row == Row::view ? Json() : Json(median(ratios(times[Row::bare], times[row]))));
    rows.push(std::move(one));
  }
  Json json = Json::object();
  json.set("version", version_number()).set("machine", machine_json()).set("bytes", kKvBytes);
  json.set("copy_threads", threads).set("tcp_streams", static_cast<std::uint64_t>(streams));
  json.set("contents_compared", true).set("rows", std::move(rows));
  std::printf("%s\n", json.text().c_str());
  return kExitOk;
}

}  // namespace

int run_demo(const DemoOptions& options) {
  if (const Result<NodeConfig> config = node_config(options.node); !config.ok())
    return report_error(config.error());
  const Result<int> code = demonstrate(options);
  return code.ok() ? *code : report_error(code.error());
}

}  // namespace stagewire::tools
