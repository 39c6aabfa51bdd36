// What a node tells about itself: statistics, metrics, and the explanation of its routes for people. See
// core.h.
#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/units.h"
#include "node/core.h"
#include "node/on_loop.h"

namespace stagewire {

NodeStats NodeCore::stats_on_loop() {
  NodeStats stats;
  stats.published = lender_->publications();
  stats.leases = lender_->leases();
  stats.waiting_claims = lender_->waiting();
  stats.running_gets = std::max(book_.gets(), reader_->running());
  stats.sessions = sessions_->all().size();
  stats.views = reader_->views();
  stats.quarantined = reader_->quarantined();
  for (const ExportedMemory& memory : memories_) {
    if (!memory.is_region()) continue;
    ++stats.regions;
    stats.region_bytes += memory.size;
  }
  return stats;
}

NodeStats NodeCore::stats() {
  NodeStats stats;
  if (fork_guard_.forked()) return stats;
  if (auto on_loop_part = on_loop<NodeStats>([this] { return stats_on_loop(); })) stats = *on_loop_part;
  stats.publish_pool = publish_pool_->stats();
  stats.receive_pool = receive_pool_->stats();
  return stats;
}

void NodeCore::refresh_gauges(const NodeStats& stats) {
  const auto set = [this](std::string_view name, std::string_view help, std::uint64_t value,
                          const MetricLabels& labels = {}) {
    metrics_.gauge(name, help, labels).set(static_cast<std::int64_t>(value));
  };
  set("stagewire_published", "Publications not yet freed", stats.published);
  set("stagewire_leases", "Leases held by readers", stats.leases);
  set("stagewire_waiting_claims", "Claims of peers that wait for a publication", stats.waiting_claims);
  set("stagewire_running_gets", "Gets without an outcome yet", stats.running_gets);
  set("stagewire_sessions", "Sessions that are up", stats.sessions);
  set("stagewire_views", "Views alive in this process", stats.views);
  set("stagewire_quarantined_destinations", "Destinations held because a read is not proven over",
      stats.quarantined);
  set("stagewire_regions", "Regions that peers may be lent", stats.regions);
  set("stagewire_region_bytes", "Bytes of all regions", stats.region_bytes);
  const std::pair<const char*, const PoolStats*> pools[] = {{"publish", &stats.publish_pool},
                                                            {"receive", &stats.receive_pool}};
  for (const auto& [name, pool] : pools) {
    const MetricLabels labels{{"pool", name}};
    set("stagewire_pool_size_bytes", "Size of the pool", pool->size, labels);
    set("stagewire_pool_used_bytes", "Allocated bytes of the pool", pool->used, labels);
    set("stagewire_pool_largest_free_bytes", "Largest request that would succeed at once", pool->largest_free,
        labels);
    set("stagewire_pool_waiting", "Requests that wait for memory", pool->waiting, labels);
    set("stagewire_pool_failed", "Requests that ended without memory", pool->failed, labels);
  }
}

std::string NodeCore::metrics_text() {
  if (fork_guard_.forked()) return {};
  refresh_gauges(stats());
  const auto oldest = on_loop<std::map<std::string, std::chrono::nanoseconds>>([this] {
    std::map<std::string, std::chrono::nanoseconds> ages;
    for (const LeaseInfo& lease : lender_->lease_list()) {
      if (!lease.view) continue;
      std::chrono::nanoseconds& age = ages[lease.reader_name];
      age = std::max(age, boottime_now() - lease.since);
    }
    return ages;
  });
  if (oldest) set_view_ages(*oldest);
  return metrics_.text();
}

void NodeCore::set_view_ages(const std::map<std::string, std::chrono::nanoseconds>& ages) {
  constexpr std::string_view kOldest = "stagewire_oldest_view_age_seconds";
  constexpr std::string_view kHeld = "stagewire_view_age_seconds";
  std::chrono::nanoseconds oldest{0};
  metrics_.zero_gauges(kHeld);
  for (const auto& [holder, age] : ages) {
    oldest = std::max(oldest, age);
    metrics_.gauge(kHeld, "Age of the oldest view of each reader that holds any", {{"holder", holder}})
        .set(age / std::chrono::seconds(1));
  }
  metrics_.gauge(kOldest, "Age of the oldest view that a reader holds of this node's memory")
      .set(oldest / std::chrono::seconds(1));
}

std::string NodeCore::explain() {
  if (fork_guard_.forked()) return "this node belongs to the parent process of a fork\n";
  return on_loop<std::string>([this] { return explain_on_loop(); }).value_or("the node is closed\n");
}

std::string NodeCore::explain_on_loop() {
  std::string text = "node " + id_.hex() + " (" + node_name_ + ")\n";
  text += "  trust: ";
  text += !secret_.empty()   ? "shared secret"
          : config_.insecure ? "insecure: TCP without a secret"
                             : "same user on this host only (no secret)";
  text += "\n  listens on:";
  for (const std::string& address : addresses()) text += " " + address;
  text += '\n';
  for (const auto& pool : {publish_pool_, receive_pool_}) {
    const PoolStats stats = pool->stats();
    text += "  " + pool->name() + ": " + format_size(stats.used) + " of " + format_size(stats.size) +
            " used by " + std::to_string(stats.buffers) + " buffers; pages of " +
            format_size(pool->page_size()) +
            (config_.huge_pages && pool->page_size() <= 4096 ? " (huge pages were asked for and not obtained)"
                                                             : "") +
            "\n";
  }
  for (const ExportedMemory& memory : memories_) {
    if (memory.is_region()) text += "  region " + memory.name + ": " + format_size(memory.size) + "\n";
  }
  text += "  transports:\n";
  for (const auto& transport : transports_) {
    Viability viability = transport->viability();
    if (transport->name() == "tcp" && !tcp_allowed_) {
      viability = {
          false,
          "not viable, because there is neither a secret (stagewire keygen makes one) nor an explicit "
          "'insecure: true'"};
    }
    text += "    " + std::string(transport->name()) + ": " + (viability.viable ? "viable, " : "") +
            viability.reason + "\n" + transport->explain();
  }
  for (const auto& [id, peer] : peers_->all()) {
    if (peer->is_self) continue;
    text += "  peer " + peer->label + ": ";
    text += peer->session ? peer->session->route_note() : std::string("no session now");
    text += '\n';
    const Route& route = peers_->route(*peer, RoutePair());
    text += "    host → host: " + (route.link != nullptr ? route.transport : std::string("no way")) + "\n";
    for (const RouteCandidate& candidate : route.considered) {
      text += "      " + candidate.transport + ": " + (candidate.viable ? "viable, " : "") +
              candidate.reason + "\n";
    }
  }
  std::vector<LeaseInfo> leases = lender_->lease_list();
  if (!leases.empty()) {
    std::sort(leases.begin(), leases.end(),
              [](const LeaseInfo& a, const LeaseInfo& b) { return a.since < b.since; });
    constexpr std::size_t kShown = 10;
    text += "  leases held by readers (" + std::to_string(leases.size()) + ", oldest first):\n";
    for (std::size_t i = 0; i < std::min(kShown, leases.size()); ++i) {
      const LeaseInfo& lease = leases[i];
      text += "    " + lease.key.to_string() + " generation " + std::to_string(lease.generation) + ", " +
              format_size(lease.bytes) + ", " + (lease.view ? "view" : "copy") + " by " +
              lease.reader_name.substr(0, 16) + " for " + format_duration(boottime_now() - lease.since) +
              "\n";
    }
  }
  return text;
}

}  // namespace stagewire
