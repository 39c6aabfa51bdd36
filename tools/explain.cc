// explain: starts a node with the given configuration and prints what it makes of it; with a peer, the route
// to it and the reasons. See commands.h.
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>

#include <stagewire/node/node.h>

#include "base/units.h"
#include "commands.h"
#include "common/json.h"

namespace stagewire::tools {

namespace {

Status reach(Node& node, const std::string& address, std::chrono::nanoseconds wait) {
  // Shared: where the wait is over first, the answer comes later, or with the node's end.
  auto connected = std::make_shared<std::promise<Status>>();
  std::future<Status> outcome = connected->get_future();
  node.connect(address, [connected](const Status& status) { connected->set_value(status); });
  if (outcome.wait_for(wait) == std::future_status::ready) return outcome.get();
  return Error(ErrorKind::deadline_exceeded,
               "no session was up within " + format_duration(wait) + " (--wait)");
}

}  // namespace

int run_explain(const ExplainOptions& options) {
  if (options.config_table) {
    std::printf("%s", config_markdown().c_str());
    return kExitOk;
  }
  Result<NodeConfig> config = node_config(options.node);
  if (!config.ok()) return report_error(config.error());
  const Result<std::chrono::nanoseconds> wait = parse_duration(options.wait, std::chrono::milliseconds(1));
  if (!wait.ok()) return report_error(wait.error());
  if (options.show_config) {
    std::printf("%s", describe(*config).c_str());
    return kExitOk;
  }
  // Nothing is published or received: the memory is not worth touching.
  config->touch_pools = false;
  Result<std::shared_ptr<Node>> node = Node::create(*config);
  if (!node.ok()) return report_error(node.error());
  const Status reached = options.peer.empty() ? Status() : reach(**node, options.peer, *wait);
  const std::string text = (*node)->explain();
  if (options.json) {
    Json json = Json::object();
    json.set("node", (*node)->id().hex()).set("addresses", (*node)->addresses());
    if (!options.peer.empty()) json.set("peer", options.peer).set("reached", reached.ok());
    if (!reached.ok()) json.set("error", reached.error().to_string());
    json.set("explain", text);
    std::printf("%s\n", json.text().c_str());
  } else {
    std::printf("%s", text.c_str());
  }
  (*node)->close();
  if (reached.ok()) return kExitOk;
  std::fprintf(stderr, "stagewire: %s is not reached: %s\n", options.peer.c_str(),
               reached.error().to_string().c_str());
  return reached.error().kind() == ErrorKind::invalid_argument ? kExitUsage : kExitFailed;
}

}  // namespace stagewire::tools
