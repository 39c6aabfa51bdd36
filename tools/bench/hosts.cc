// bench serve and bench run: the same measurements between two hosts, where no pipe connects the processes.
// The server publishes every size under a name that the other side can work out, in place over one buffer;
// the client gets them. See commands.h.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <limits>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/units.h"
#include "bench/bench.h"
#include "bench/data.h"
#include "commands.h"
#include "common/version.h"

namespace stagewire::tools {

namespace {

constexpr std::uint64_t kSmallest = 4096;
constexpr std::uint64_t kLargest = 1ULL << 30;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint64_t kObjectTensors = 56;

// 4 KiB to 1 GiB in steps of four, and the KV cache's size.
std::vector<std::uint64_t> served_sizes(std::uint64_t largest) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = kSmallest; size <= std::min(largest, kLargest); size *= 4) sizes.push_back(size);
  if (kKvBytes <= largest) sizes.push_back(kKvBytes);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

// A dict's tensors are equal and whole words: the size is cut down to a multiple of 56 × 8 bytes.
std::uint64_t object_size(std::uint64_t size) {
  return size / (kObjectTensors * 8) * (kObjectTensors * 8);
}

Key served_key(const std::string& kind, std::uint64_t size) {
  return bench_key(kind + "/" + std::to_string(size));
}

Status publish_all(Node& node, const std::vector<std::uint64_t>& sizes) {
  STAGEWIRE_ASSIGN(Buffer made, node.publish_pool()->allocate(sizes.back(), "bench serve",
                                                              Deadline::in(std::chrono::seconds(5))));
  const auto buffer = std::make_shared<Buffer>(std::move(made));
  fill_pattern(buffer->data(), sizes.back(), kSeed);
  PutOptions options = bench_put_options();
  options.ttl = options.max_lifetime = std::chrono::hours(24 * 30);
  options.readers = std::numeric_limits<std::uint32_t>::max();
  for (const std::uint64_t size : sizes) {
    STAGEWIRE_ASSIGN(const Payload flat, make_payload(buffer->data(), size, 1));
    STAGEWIRE_TRY(node.put_in_place(served_key("flat", size), flat, {buffer}, options));
    STAGEWIRE_ASSIGN(const Payload object, make_payload(buffer->data(), object_size(size), kObjectTensors));
    STAGEWIRE_TRY(node.put_in_place(served_key("object", size), object, {buffer}, options));
  }
  return {};
}

Result<int> serve(const ServeOptions& options) {
  STAGEWIRE_ASSIGN(const std::uint64_t largest, parse_size(options.max_size, kSmallest, kLargest));
  const std::vector<std::uint64_t> sizes = served_sizes(largest);
  const OptionList base{{"publish_pool_size", std::to_string(sizes.back() + (16U << 20U))},
                        {"receive_pool_size", "16MiB"},
                        {"view_share_percent", "100"}};
  // Blocked before the node's threads start, so that the wait below gets them.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  STAGEWIRE_ASSIGN(const std::shared_ptr<Node> node, start_bench_node(options.node, base, false));
  STAGEWIRE_TRY(publish_all(*node, sizes));
  for (const std::string& address : node->addresses()) std::printf("listening on %s\n", address.c_str());
  std::printf("serving %s to %s; on the other host: stagewire bench run --peer HOST:PORT\n",
              format_size(sizes.front()).c_str(), format_size(sizes.back()).c_str());
  std::fflush(stdout);
  if (options.seconds > 0) {
    const timespec wait{
        .tv_sec = static_cast<std::time_t>(options.seconds),
        .tv_nsec = static_cast<long>(
            (options.seconds - static_cast<double>(static_cast<std::time_t>(options.seconds))) * 1e9)};
    static_cast<void>(::sigtimedwait(&ending, nullptr, &wait));
  } else {
    static_cast<void>(::sigwaitinfo(&ending, nullptr));
  }
  node->close();
  return kExitOk;
}

struct Row {
  std::string mode;
  std::uint64_t size = 0;  // bytes really moved
  unsigned depth = 1;
  std::string transport;
  Samples latencies;
  double seconds = 0;  // of all gets together
};

class Runner {
 public:
  Runner(const RunOptions& options, std::shared_ptr<Node> node) : options_(options), node_(std::move(node)) {}

  Result<Row> measure(const std::string& mode, std::uint64_t size, unsigned depth) {
    Row row;
    row.mode = mode;
    row.depth = depth;
    const bool object = mode == "object";
    row.size = object ? object_size(size) : size;
    Source source = Source::at(options_.peer, served_key(object ? "object" : "flat", size));
    const Placement placement = mode == "view"   ? Placement::view
                                : mode == "into" ? Placement::into
                                                 : Placement::copy;
    if (placement == Placement::into && (!destination_.data() || destination_.size() < depth * size)) {
      destination_ = Memory();
      STAGEWIRE_ASSIGN(destination_, Memory::make(depth * size));
    }
    // Enough for percentiles where gets are short, and about 4 GB where they are long.
    const unsigned by_size = static_cast<unsigned>(std::clamp<std::uint64_t>((4ULL << 30) / size, 8, 500));
    const unsigned count = std::max(options_.gets != 0 ? options_.gets : by_size, depth);
    STAGEWIRE_ASSIGN(const Got first, one(source, placement, size, 0));
    STAGEWIRE_TRY(check_payload(first.payload, row.size, kSeed));
    row.transport = first.view ? first.transport + ", view" : first.transport;
    STAGEWIRE_TRY(run(source, placement, size, count, row));
    return row;
  }

 private:
  GetOptions get_options(Placement placement, std::uint64_t size, unsigned lane) {
    GetOptions options(Deadline::in(std::chrono::seconds(60)));
    options.placement = placement;
    options.reader = std::to_string(::getpid()) + "." + std::to_string(reader_++);
    options.wait = false;
    if (placement == Placement::into)
      options.into.push_back(
          {.data = destination_.data() + lane * size, .size = size, .kind = MemoryKind::host()});
    return options;
  }

  Result<Got> one(const Source& source, Placement placement, std::uint64_t size, unsigned lane) {
    return node_->get(source, get_options(placement, size, lane));
  }

  // Keeps `depth` gets running; each lane has its own destination. The oldest is waited for first.
  Status run(const Source& source, Placement placement, std::uint64_t size, unsigned count, Row& row) {
    using SteadyClock = std::chrono::steady_clock;
    struct Lane {
      GetHandle handle;
      SteadyClock::time_point started;
    };
    const auto begun = SteadyClock::now();
    if (row.depth == 1) {
      for (unsigned i = 0; i < count; ++i) {
        const auto start = SteadyClock::now();
        const Result<Got> got = one(source, placement, size, 0);
        row.latencies.push_back(std::chrono::duration<double>(SteadyClock::now() - start).count());
        if (!got.ok()) return got.error();
      }
    } else {
      std::vector<Lane> lanes(row.depth);
      for (unsigned i = 0; i < count + row.depth; ++i) {
        Lane& lane = lanes[i % row.depth];
        if (lane.handle.valid()) {
          STAGEWIRE_TRY(lane.handle.wait(Deadline::in(std::chrono::seconds(90))));
          row.latencies.push_back(std::chrono::duration<double>(SteadyClock::now() - lane.started).count());
          STAGEWIRE_TRY(lane.handle.take());
        }
        if (i >= count) continue;
        lane.started = SteadyClock::now();
        lane.handle = node_->get_async(source, get_options(placement, size, i % row.depth));
      }
    }
    row.seconds = std::chrono::duration<double>(SteadyClock::now() - begun).count();
    return {};
  }

  const RunOptions& options_;
  std::shared_ptr<Node> node_;
  Memory destination_;
  std::uint64_t reader_ = 0;
};

void print_row(const Row& row) {
  const double moved = static_cast<double>(row.size) * static_cast<double>(row.latencies.size());
  std::printf(
      "%s%s%s  %s%s%s%s\n", padded(row.mode, 8).c_str(), padded(format_size(row.size), 10, true).c_str(),
      padded(std::to_string(row.depth), 7, true).c_str(), padded(row.transport, 12).c_str(),
      padded(time_text(median(row.latencies)), 11, true).c_str(),
      padded(time_text(percentile(row.latencies, 0.99)), 11, true).c_str(),
      padded(row.transport.ends_with("view") ? "-" : rate_text(moved, row.seconds), 13, true).c_str());
  std::fflush(stdout);
}

Json row_json(const Row& row) {
  const double moved = static_cast<double>(row.size) * static_cast<double>(row.latencies.size());
  Json json = Json::object();
  json.set("mode", row.mode).set("bytes", row.size).set("depth", row.depth).set("transport", row.transport);
  json.set("times", times_json(row.latencies)).set("bytes_per_second", moved / row.seconds);
  return json;
}

Result<std::vector<std::uint64_t>> wanted_sizes(const RunOptions& options) {
  const std::vector<std::uint64_t> served = served_sizes(kLargest);
  if (options.sizes.empty()) return served;
  std::vector<std::uint64_t> sizes;
  for (const std::string& text : options.sizes) {
    STAGEWIRE_ASSIGN(std::uint64_t size, parse_size(text, kSmallest, kLargest));
    if (size == 195'000'000) size = kKvBytes;
    if (std::find(served.begin(), served.end(), size) == served.end()) {
      return Error(ErrorKind::invalid_argument, "--size " + text +
                                                    ": `bench serve` has 4KiB, 16KiB, 64KiB, 256KiB, " +
                                                    "1MiB, 4MiB, 16MiB, 64MiB, 195MB, 256MiB and 1GiB");
    }
    sizes.push_back(size);
  }
  return sizes;
}

Result<int> run_all(const RunOptions& options) {
  STAGEWIRE_ASSIGN(const std::vector<std::uint64_t> sizes, wanted_sizes(options));
  const unsigned deepest = *std::max_element(options.depths.begin(), options.depths.end());
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const std::uint64_t receive = std::min<std::uint64_t>(largest * (deepest + 1), 2ULL << 30) + (16U << 20U);
  STAGEWIRE_ASSIGN(
      const std::shared_ptr<Node> node,
      start_bench_node(options.node,
                       {{"publish_pool_size", "16MiB"}, {"receive_pool_size", std::to_string(receive)}},
                       false));
  Progress progress(options.progress);
  Runner runner(options, node);
  Json rows = Json::list();
  if (!options.json) {
    std::printf("%s%s%s  %s%s%s%s\n", padded("mode", 8).c_str(), padded("size", 10, true).c_str(),
                padded("depth", 7, true).c_str(), padded("route", 12).c_str(),
                padded("p50", 11, true).c_str(), padded("p99", 11, true).c_str(),
                padded("GB/s", 13, true).c_str());
  }
  for (const std::string& mode : options.modes) {
    for (const std::uint64_t size : sizes) {
      for (const unsigned depth : options.depths) {
        // What does not fit into the receive pool at once would measure waiting for memory.
        if (size * depth > receive) continue;
        progress.say(mode + ", " + format_size(size) + ", " + std::to_string(depth) + " at once");
        Result<Row> row = runner.measure(mode, size, depth);
        progress.say("");
        // The server may have been told to serve less.
        if (!row.ok() && row.error().kind() == ErrorKind::not_found && options.sizes.empty()) continue;
        if (!row.ok()) return row.error();
        if (options.json) {
          rows.push(row_json(*row));
        } else {
          print_row(*row);
        }
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

int run_bench_serve(const ServeOptions& options) {
  const Result<int> code = serve(options);
  return code.ok() ? *code : report_error(code.error());
}

int run_bench_run(const RunOptions& options) {
  const Result<int> code = run_all(options);
  return code.ok() ? *code : report_error(code.error());
}

}  // namespace stagewire::tools
