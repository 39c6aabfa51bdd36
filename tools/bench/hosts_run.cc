// bench run: gets what a `bench serve` on another host publishes, and measures it. Runs on the main thread.
// See commands.h.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "base/host_port.h"
#include "base/units.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/data.h"
#include "bench/hosts.h"
#include "commands.h"
#include "common/version.h"

namespace stagewire::tools {

namespace {

constexpr std::chrono::seconds kGetLimit{60};
constexpr std::chrono::seconds kCatalogLimit{10};

struct Row {
  std::string mode;
  std::uint64_t size = 0;  // bytes really moved
  unsigned depth = 1;
  std::string transport;
  Samples latencies;
  double seconds = 0;  // of all gets together
};

// What is measured in one row.
struct Work {
  std::string mode;
  std::uint64_t size = 0;
  unsigned depth = 1;
  Source source;
  Placement placement = Placement::copy;
};

class Runner {
 public:
  Runner(const RunOptions& options, std::uint64_t page_size, std::shared_ptr<Node> node, Catalog catalog)
      : options_(options), page_size_(page_size), node_(std::move(node)), catalog_(std::move(catalog)) {}

  Result<Row> measure(const std::string& mode, std::uint64_t size, unsigned depth) {
    Work work{.mode = mode, .size = size, .depth = depth, .source = {}, .placement = Placement::copy};
    const auto& tickets = mode == "object"   ? catalog_.object
                          : mode == "inline" ? catalog_.inlined
                                             : catalog_.flat;
    work.source = Source::of(tickets.at(size));
    // The server's own idea of its address need not be one that can be reached from here.
    work.source.addresses = {options_.peer};
    if (mode == "view") work.placement = Placement::view;
    if (mode == "into" || mode == "pages") work.placement = Placement::into;
    if (work.placement == Placement::into && (!destination_.data() || destination_.size() < depth * size)) {
      destination_ = Memory();
      STAGEWIRE_ASSIGN(destination_, Memory::make(depth * size));
    }
    Row row;
    row.mode = mode;
    row.depth = depth;
    row.size = mode == "object" ? object_size(size) : size;
    for (unsigned i = 0; i < options_.warm_up; ++i) {
      STAGEWIRE_ASSIGN(const Got got, one(work, 0));
      row.transport = got.view ? got.transport + ", view" : got.transport;
      if (i == 0) STAGEWIRE_TRY(check(work, row, got));
    }
    // Enough for percentiles where gets are short, and about 4 GB where they are long.
    const unsigned by_size = static_cast<unsigned>(std::clamp<std::uint64_t>((4ULL << 30) / size, 8, 500));
    STAGEWIRE_TRY(run(work, std::max(options_.gets != 0 ? options_.gets : by_size, depth), row));
    return row;
  }

  // Round trips over a bare TCP connection to the same host.
  Result<Row> measure_pings() {
    if (catalog_.echo_port == 0) {
      return Error(ErrorKind::invalid_argument,
                   "--mode ping: the peer has no echo; start it as `bench serve --echo`");
    }
    STAGEWIRE_ASSIGN(const HostPort peer, parse_host_port(options_.peer));
    STAGEWIRE_ASSIGN(const std::unique_ptr<EchoClient> client,
                     EchoClient::connect_to_host(peer.host, catalog_.echo_port));
    Row row;
    row.mode = "ping";
    row.size = kPingBytes;
    row.transport = "bare TCP";
    STAGEWIRE_TRY(client->round_trips(options_.warm_up));
    const auto begun = std::chrono::steady_clock::now();
    STAGEWIRE_ASSIGN(row.latencies, client->round_trips(options_.gets != 0 ? options_.gets : 500));
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    return row;
  }

 private:
  std::byte* lane_data(const Work& work, unsigned lane) const {
    return destination_.data() + lane * work.size;
  }

  GetOptions get_options(const Work& work, unsigned lane) {
    GetOptions options(Deadline::in(kGetLimit));
    options.placement = work.placement;
    options.reader = reader_prefix_ + std::to_string(reader_++);
    if (work.placement != Placement::into) return options;
    std::byte* data = lane_data(work, lane);
    const std::uint64_t page = work.mode == "pages" ? std::min(page_size_, work.size) : work.size;
    // Backwards: no page continues the one before it, as in a paged cache after some use.
    for (std::uint64_t left = work.size; left != 0;) {
      const std::uint64_t length = std::min(page, left);
      left -= length;
      options.into.push_back({.data = data + left, .size = length, .kind = MemoryKind::host()});
    }
    return options;
  }

  Result<Got> one(const Work& work, unsigned lane) {
    return node_->get(work.source, get_options(work, lane));
  }

  // Every byte of the first get.
  Status check(const Work& work, const Row& row, const Got& got) {
    if (work.mode != "pages") return check_payload(got.payload, row.size, kServedSeed);
    std::uint64_t at = 0;
    for (const DestinationRange& range : get_options(work, 0).into) {
      if (!is_pattern(range.data, range.size, kServedSeed, at))
        return Error(ErrorKind::internal,
                     "the page of byte " + std::to_string(at) + " is not what was published");
      at += range.size;
    }
    return {};
  }

  // Keeps `depth` gets running; each lane has its own destination. The oldest is waited for first.
  Status run(const Work& work, unsigned count, Row& row) {
    using SteadyClock = std::chrono::steady_clock;
    const auto since = [](SteadyClock::time_point start) {
      return std::chrono::duration<double>(SteadyClock::now() - start).count();
    };
    struct Lane {
      GetHandle handle;
      SteadyClock::time_point started;
    };
    const auto begun = SteadyClock::now();
    if (work.depth == 1) {
      for (unsigned i = 0; i < count; ++i) {
        GetOptions how = get_options(work, 0);
        const auto start = SteadyClock::now();
        const Result<Got> got = node_->get(work.source, std::move(how));
        row.latencies.push_back(since(start));
        if (!got.ok()) return got.error();
      }
    } else {
      std::vector<Lane> lanes(work.depth);
      for (unsigned i = 0; i < count + work.depth; ++i) {
        Lane& lane = lanes[i % work.depth];
        if (lane.handle.valid()) {
          STAGEWIRE_TRY(lane.handle.wait(Deadline::in(kGetLimit + std::chrono::seconds(30))));
          row.latencies.push_back(since(lane.started));
          STAGEWIRE_TRY(lane.handle.take());
        }
        if (i >= count) continue;
        GetOptions how = get_options(work, i % work.depth);
        lane.started = SteadyClock::now();
        lane.handle = node_->get_async(work.source, std::move(how));
      }
    }
    row.seconds = since(begun);
    return {};
  }

  const RunOptions& options_;
  std::uint64_t page_size_;
  std::shared_ptr<Node> node_;
  Catalog catalog_;
  Memory destination_;
  const std::string reader_prefix_ = std::to_string(::getpid()) + ".";
  std::uint64_t reader_ = 0;
};

void print_heading() {
  std::printf("%s%s%s  %s%s%s%s\n", padded("mode", 8).c_str(), padded("size", 10, true).c_str(),
              padded("depth", 7, true).c_str(), padded("route", 12).c_str(), padded("p50", 11, true).c_str(),
              padded("p99", 11, true).c_str(), padded("GB/s", 13, true).c_str());
}

void print_row(const Row& row) {
  const double moved = static_cast<double>(row.size) * static_cast<double>(row.latencies.size());
  const bool moves = !row.transport.ends_with("view") && row.mode != "ping";
  std::printf("%s%s%s  %s%s%s%s\n", padded(row.mode, 8).c_str(),
              padded(format_size(row.size), 10, true).c_str(),
              padded(std::to_string(row.depth), 7, true).c_str(), padded(row.transport, 12).c_str(),
              padded(time_text(median(row.latencies)), 11, true).c_str(),
              padded(time_text(percentile(row.latencies, 0.99)), 11, true).c_str(),
              padded(moves ? rate_text(moved, row.seconds) : "-", 13, true).c_str());
  std::fflush(stdout);
}

Json row_json(const Row& row) {
  const double moved = static_cast<double>(row.size) * static_cast<double>(row.latencies.size());
  Json json = Json::object();
  json.set("mode", row.mode).set("bytes", row.size).set("depth", row.depth).set("transport", row.transport);
  json.set("times", times_json(row.latencies)).set("bytes_per_second", moved / row.seconds);
  return json;
}

Result<std::vector<std::uint64_t>> wanted_sizes(const RunOptions& options, const Catalog& catalog) {
  std::vector<std::uint64_t> sizes;
  if (options.sizes.empty()) {
    for (const auto& [size, ticket] : catalog.flat) sizes.push_back(size);
    return sizes;
  }
  for (const std::string& text : options.sizes) {
    STAGEWIRE_ASSIGN(std::uint64_t size, parse_size(text, kSmallestServed, kLargestServed));
    if (size == 195'000'000) size = kKvBytes;
    if (!catalog.flat.contains(size)) {
      return Error(ErrorKind::invalid_argument, "--size " + text + ": the peer serves " +
                                                    catalog.sizes_text() +
                                                    "; `bench serve --size` has it serve others");
    }
    sizes.push_back(size);
  }
  return sizes;
}

// Waits a little for a server that is just starting.
Result<Catalog> fetch_catalog(Node& node, const std::string& peer) {
  GetOptions how(Deadline::in(kCatalogLimit));
  how.reader = std::to_string(::getpid());
  const Result<Got> got = node.get(Source::at(peer, catalog_key()), std::move(how));
  if (!got.ok() && got.error().kind() == ErrorKind::deadline_exceeded) {
    return Error(ErrorKind::unreachable,
                 "no catalog came from " + peer + " within " + std::to_string(kCatalogLimit.count()) +
                     " s: does `stagewire bench serve` run there? (" + got.error().to_string() + ")");
  }
  if (!got.ok()) return got.error();
  return Catalog::parse(got->payload);
}

// The receive pool has to be there before the peer has said what it serves.
Result<std::uint64_t> receive_bytes(const RunOptions& options) {
  std::uint64_t largest = options.sizes.empty() ? kLargestServed : 0;
  for (const std::string& text : options.sizes) {
    STAGEWIRE_ASSIGN(const std::uint64_t size, parse_size(text, kSmallestServed, kLargestServed));
    largest = std::max(largest, size);
  }
  const unsigned deepest = *std::max_element(options.depths.begin(), options.depths.end());
  return std::min<std::uint64_t>(largest * (deepest + 1), 2ULL << 30) + (16U << 20U);
}

Result<int> run_all(const RunOptions& options) {
  STAGEWIRE_ASSIGN(const std::uint64_t receive, receive_bytes(options));
  STAGEWIRE_ASSIGN(const std::uint64_t page_size, parse_size(options.page_size, 8, kLargestServed));
  STAGEWIRE_ASSIGN(
      const std::shared_ptr<Node> node,
      start_bench_node(options.node,
                       {{"publish_pool_size", "16MiB"}, {"receive_pool_size", std::to_string(receive)}},
                       false));
  STAGEWIRE_ASSIGN(const Catalog catalog, fetch_catalog(*node, options.peer));
  STAGEWIRE_ASSIGN(const std::vector<std::uint64_t> sizes, wanted_sizes(options, catalog));
  Progress progress(options.progress);
  Runner runner(options, page_size, node, catalog);
  Json rows = Json::list();
  const auto show = [&](const Row& row) {
    progress.say("");
    if (options.json) {
      rows.push(row_json(row));
    } else {
      print_row(row);
    }
  };
  if (!options.json) print_heading();
  for (const std::string& mode : options.modes) {
    if (mode == "ping") {
      progress.say(mode);
      STAGEWIRE_ASSIGN(const Row row, runner.measure_pings());
      show(row);
      continue;
    }
    for (const std::uint64_t size : sizes) {
      if (mode == "object" && object_size(size) == 0) continue;
      if (mode == "inline" && !catalog.inlined.contains(size)) continue;
      for (const unsigned depth : options.depths) {
        // What does not fit into the receive pool at once would measure waiting for memory.
        if (size * depth > receive) continue;
        progress.say(mode + ", " + format_size(size) + ", " + std::to_string(depth) + " at once");
        STAGEWIRE_ASSIGN(const Row row, runner.measure(mode, size, depth));
        show(row);
      }
    }
  }
  if (options.json) {
    Json json = Json::object();
    json.set("version", version_number()).set("machine", machine_json()).set("peer", options.peer);
    json.set("rows", std::move(rows));
    std::printf("%s\n", json.text().c_str());
  }
  node->close();
  return kExitOk;
}

}  // namespace

int run_bench_run(const RunOptions& options) {
  const Result<int> code = run_all(options);
  return code.ok() ? *code : report_error(code.error());
}

}  // namespace stagewire::tools
