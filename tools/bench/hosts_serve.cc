// bench serve: publishes payloads of many sizes for `bench run` on another host, in place over one buffer,
// and a catalog with their tickets. Runs on the main thread until it is interrupted. See commands.h.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include "base/units.h"
#include "bench/bare.h"
#include "bench/bench_node.h"
#include "bench/data.h"
#include "bench/hosts.h"
#include "commands.h"
#include "common/json.h"

namespace stagewire::tools {

namespace {

// 8 bytes, 4 KiB to 1 GiB in steps of four, and the KV cache's size; or what was asked for.
Result<std::vector<std::uint64_t>> served_sizes(const ServeOptions& options) {
  STAGEWIRE_ASSIGN(const std::uint64_t largest,
                   parse_size(options.max_size, kSmallestServed, kLargestServed));
  std::vector<std::uint64_t> sizes;
  for (const std::string& text : options.sizes) {
    STAGEWIRE_ASSIGN(const std::uint64_t size, parse_size(text, kSmallestServed, kLargestServed));
    if (size % 8 != 0)
      return Error(ErrorKind::invalid_argument, "--size " + text + ": sizes are multiples of 8 bytes");
    sizes.push_back(size);
  }
  if (sizes.empty()) {
    sizes.push_back(kSmallestServed);
    for (std::uint64_t size = 4096; size <= largest; size *= 4) sizes.push_back(size);
    if (kKvBytes <= largest) sizes.push_back(kKvBytes);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

Result<Catalog> publish_all(Node& node, const std::vector<std::uint64_t>& sizes, const PutOptions& options) {
  STAGEWIRE_ASSIGN(Buffer made, node.publish_pool()->allocate(sizes.back(), "bench serve",
                                                              Deadline::in(std::chrono::seconds(5))));
  const auto buffer = std::make_shared<Buffer>(std::move(made));
  fill_pattern(buffer->data(), sizes.back(), kServedSeed);
  Catalog catalog;
  for (const std::uint64_t size : sizes) {
    const std::string name = std::to_string(size);
    STAGEWIRE_ASSIGN(const Payload flat, make_payload(buffer->data(), size, 1));
    STAGEWIRE_ASSIGN(catalog.flat[size],
                     node.put_in_place(bench_key("flat/" + name), flat, {buffer}, options));
    if (size <= node.config().inline_limit) {
      STAGEWIRE_ASSIGN(catalog.inlined[size], node.put(bench_key("inline/" + name), flat, options));
    }
    if (object_size(size) == 0) continue;
    STAGEWIRE_ASSIGN(const Payload object, make_payload(buffer->data(), object_size(size), kObjectTensors));
    STAGEWIRE_ASSIGN(catalog.object[size],
                     node.put_in_place(bench_key("object/" + name), object, {buffer}, options));
  }
  return catalog;
}

// Until SIGINT or SIGTERM, or as long as was asked for.
void wait_for_end(const sigset_t& ending, double seconds) {
  if (seconds <= 0) {
    static_cast<void>(::sigwaitinfo(&ending, nullptr));
    return;
  }
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec wait{.tv_sec = whole,
                      .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  static_cast<void>(::sigtimedwait(&ending, nullptr, &wait));
}

void announce(bool as_json, const std::vector<std::string>& addresses, const Catalog& catalog, bool echo) {
  if (as_json) {
    Json sizes = Json::list();
    for (const auto& [size, tickets] : catalog.flat) sizes.push(size);
    Json json = Json::object().set("addresses", addresses).set("sizes", std::move(sizes));
    if (echo) json.set("echo_port", std::uint32_t{catalog.echo_port});
    std::printf("%s\n", json.text().c_str());
  } else {
    for (const std::string& address : addresses) std::printf("listening on %s\n", address.c_str());
    if (echo) std::printf("echoing bare TCP pings on port %u\n", static_cast<unsigned>(catalog.echo_port));
    std::printf("serving %s; on the other host: stagewire bench run --peer HOST:PORT\n",
                catalog.sizes_text().c_str());
  }
  std::fflush(stdout);
}

Result<int> serve(const ServeOptions& options) {
  STAGEWIRE_ASSIGN(const std::vector<std::uint64_t> sizes, served_sizes(options));
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
  PutOptions how = bench_put_options();
  how.ttl = how.max_lifetime = std::chrono::hours(24 * 30);
  how.readers = std::numeric_limits<std::uint32_t>::max();
  STAGEWIRE_ASSIGN(Catalog catalog, publish_all(*node, sizes, how));
  std::unique_ptr<EchoServer> echo;
  if (options.echo) {
    STAGEWIRE_ASSIGN(echo, EchoServer::start_for_all(catalog.echo_port));
  }
  STAGEWIRE_TRY(node->put(catalog_key(), catalog.to_payload(), how));
  announce(options.json, node->addresses(), catalog, echo != nullptr);
  wait_for_end(ending, options.seconds);
  node->close();
  return kExitOk;
}

}  // namespace

int run_bench_serve(const ServeOptions& options) {
  const Result<int> code = serve(options);
  return code.ok() ? *code : report_error(code.error());
}

}  // namespace stagewire::tools
