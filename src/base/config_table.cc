// The rows of the option table and what is derived from them: help, docs, suggestions. Constants; any thread.
#include "base/config_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <type_traits>

#include "base/units.h"

namespace stagewire {

namespace config {

namespace {

constexpr std::uint64_t kKiB = 1ULL << 10;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kTiB = 1ULL << 40;

constexpr std::uint64_t ns(std::chrono::nanoseconds duration) noexcept {
  return static_cast<std::uint64_t>(duration.count());
}
constexpr std::uint64_t kMillisecond = ns(std::chrono::milliseconds(1));
constexpr std::uint64_t kMinute = ns(std::chrono::minutes(1));
constexpr std::uint64_t kDay = ns(std::chrono::hours(24));

constexpr std::array<std::string_view, 5> kRoutes{"auto", "local", "shm", "verbs", "tcp"};
constexpr std::array<std::string_view, 6> kLogLevels{"trace", "debug", "info", "warn", "error", "off"};

using C = NodeConfig;
constexpr std::array kRows{
    Row{"name", &C::name, "Name in logs, metrics and errors; empty: made from the process id"},
    Row{"secret", &C::secret, "Shared secret, as `stagewire keygen` prints it; empty: none", 0, 0, {}, true},
    Row{"secret_file", &C::secret_file, "File that holds the secret, instead of `secret`"},
    Row{"insecure", &C::insecure, "Serve TCP, loopback included, without a secret"},
    Row{"listen", &C::listen, "Addresses to listen on: host:port or [IPv6]:port; port 0: any free one"},
    Row{"advertise", &C::advertise, "Addresses to put into tickets instead of the listening ones"},
    Row{"socket_dir", &C::socket_dir, "Directory for Unix sockets; empty: abstract sockets"},
    Row{"publish_pool_size", &C::publish_pool_size, "Memory for published payloads", kMiB, 16 * kTiB},
    Row{"receive_pool_size", &C::receive_pool_size, "Memory for received payloads", kMiB, 16 * kTiB},
    Row{"huge_pages", &C::huge_pages, "Ask for huge pages; `doctor` says what was obtained"},
    Row{"touch_pools", &C::touch_pools, "Touch the pools' pages in the background at start"},
    Row{"copy_threads", &C::copy_threads, "Threads that copy large payloads; 0: by CPU count", 0, 64},
    Row{"inline_limit", &C::inline_limit, "Payloads up to this size travel inside the grant", 0, 64 * kKiB},
    Row{"ttl", &C::ttl, "Time to live of a payload that nobody has leased", 10 * kMillisecond, 30 * kDay},
    Row{"max_lifetime", &C::max_lifetime, "A payload is withdrawn after this long, leased or not",
        10 * kMillisecond, 30 * kDay},
    Row{"put_wait", &C::put_wait, "How long a put waits for memory", 0, kDay},
    Row{"get_deadline", &C::get_deadline, "Deadline of a get that names none (Python)", kMillisecond,
        30 * kDay},
    Row{"max_waiting_claims", &C::max_waiting_claims, "Claims per peer that may wait for a payload", 1,
        1U << 20},
    Row{"view_share_percent", &C::view_share_percent,
        "Share of the publish pool that one peer may hold as views, in percent", 0, 100},
    Row{"heartbeat", &C::heartbeat, "Time between two heartbeats", 10 * kMillisecond, kMinute},
    Row{"lease", &C::lease, "A peer silent for this long loses its leases; at least 3 heartbeats",
        30 * kMillisecond, 60 * kMinute},
    Row{"handshake_timeout", &C::handshake_timeout, "Time to connect to a peer and authenticate",
        10 * kMillisecond, 5 * kMinute},
    Row{"opening_timeout", &C::opening_timeout, "Time an accepted connection has to authenticate",
        10 * kMillisecond, kMinute},
    Row{"max_unauthenticated", &C::max_unauthenticated, "Accepted connections not yet authenticated", 1,
        4096},
    Row{"max_sessions", &C::max_sessions, "Peers connected at the same time", 1, 1U << 16},
    Row{"abort_grace", &C::abort_grace, "Time past a deadline to make an operation's memory safe", 0,
        kMinute},
    Row{"spin", &C::spin, "How long a waiting caller spins before it sleeps", 0, kMillisecond},
    Row{"routes", &C::routes, "Transports allowed, best first; auto: whatever suits the peer", 0, 0, kRoutes},
    Row{"tcp_connections", &C::tcp_connections, "TCP data connections per peer", 1, 16},
    Row{"tcp_chunk", &C::tcp_chunk, "Payload bytes per TCP data frame", 64 * kKiB, 16 * kMiB},
    Row{"tcp_window", &C::tcp_window, "Chunks in flight per TCP data connection", 1, 64},
    Row{"tcp_buffer", &C::tcp_buffer, "Socket buffer of TCP data connections; 0: tuned by the kernel", 0,
        kGiB},
    Row{"tcp_congestion", &C::tcp_congestion,
        "TCP congestion control, by name; empty: the system's, and reno to peers of this host"},
    Row{"data_threads", &C::data_threads, "Threads that move TCP data", 1, 32},
    Row{"rdma_device", &C::rdma_device, "RDMA device, as ibv_devices lists it; empty: chosen"},
    Row{"rdma_port", &C::rdma_port, "Port of the RDMA device; 0: chosen", 0, 255},
    Row{"rdma_gid_index", &C::rdma_gid_index, "GID of the port, by index; 256: chosen", 0, 256},
    Row{"rdma_mtu", &C::rdma_mtu, "Largest path MTU; both ports bound it, too", 256, 4096},
    Row{"rdma_pkey_index", &C::rdma_pkey_index, "Partition key, by index", 0, 65535},
    Row{"rdma_traffic_class", &C::rdma_traffic_class, "Traffic class; RoCE: DSCP × 4", 0, 255},
    Row{"rdma_service_level", &C::rdma_service_level, "InfiniBand service level", 0, 15},
    Row{"rdma_hop_limit", &C::rdma_hop_limit, "Hop limit of routed packets", 1, 255},
    Row{"rdma_global_route", &C::rdma_global_route, "InfiniBand: route by GID within one subnet, too"},
    Row{"rdma_timeout", &C::rdma_timeout, "Local ACK timeout: 4.096 µs × 2 to the power of this", 1, 31},
    Row{"rdma_retry_count", &C::rdma_retry_count, "Tries of an unanswered request after the first", 0, 7},
    Row{"rdma_rnr_retry", &C::rdma_rnr_retry, "Tries when the peer is not ready; 7: for ever", 0, 7},
    Row{"rdma_queue_pairs", &C::rdma_queue_pairs, "Queue pairs per peer, to read through", 1, 16},
    Row{"rdma_max_queue_pairs", &C::rdma_max_queue_pairs, "Queue pairs in all, in either direction", 1,
        65536},
    Row{"rdma_send_queue_depth", &C::rdma_send_queue_depth, "Requests posted per queue pair at most", 1,
        16384},
    Row{"rdma_chunk", &C::rdma_chunk, "Bytes of one RDMA READ at most", 4 * kKiB, kGiB},
    Row{"rdma_window", &C::rdma_window, "Bytes in flight per read; at least rdma_chunk", 4 * kKiB, 16 * kMiB},
    Row{"rdma_spin", &C::rdma_spin, "How long the poller spins before it sleeps", 0, kMillisecond},
    Row{"rdma_abort_fence", &C::rdma_abort_fence,
        "Time for a stopped read's window to end by itself; then its queue pairs are stopped", 0,
        10 * kMinute},
    Row{"rdma_connect_timeout", &C::rdma_connect_timeout, "Time to connect queue pairs to a peer",
        10 * kMillisecond, 5 * kMinute},
    Row{"rdma_idle_timeout", &C::rdma_idle_timeout, "Queue pairs unused for so long are closed; 0: kept", 0,
        kDay},
    Row{"log_level", &C::log_level, "Least important messages that are logged", 0, 0, kLogLevels},
};

std::string join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += ',';
    text += item;
  }
  return text;
}

std::string join_choices(std::span<const std::string_view> choices) {
  std::string text;
  for (const std::string_view choice : choices) {
    if (!text.empty()) text += ", ";
    text += choice;
  }
  return text;
}

// Levenshtein's distance, by the usual two-row dynamic programming.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

OptionType Row::type() const noexcept {
  struct Visitor {
    bool has_choices;
    OptionType operator()(bool C::*) const noexcept { return OptionType::boolean; }
    OptionType operator()(std::uint32_t C::*) const noexcept { return OptionType::integer; }
    OptionType operator()(std::uint64_t C::*) const noexcept { return OptionType::size; }
    OptionType operator()(std::chrono::nanoseconds C::*) const noexcept { return OptionType::duration; }
    OptionType operator()(std::string C::*) const noexcept {
      return has_choices ? OptionType::choice : OptionType::text;
    }
    OptionType operator()(std::vector<std::string> C::*) const noexcept {
      return has_choices ? OptionType::choice_list : OptionType::text_list;
    }
  };
  return std::visit(Visitor{!choices.empty()}, field);
}

std::span<const Row> rows() noexcept {
  return kRows;
}

const Row* find_row(std::string_view name) noexcept {
  const auto* const found =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.name == name; });
  return found == kRows.end() ? nullptr : found;
}

std::string_view nearest_name(std::string_view name) {
  // Far longer than any option: nothing is near, and the distance costs length × length.
  constexpr std::size_t kLongestTypo = 64;
  if (name.empty() || name.size() > kLongestTypo) return {};
  std::string folded(name);
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  std::string_view nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const Row& row : kRows) {
    const std::size_t distance = edit_distance(folded, row.name);
    if (distance < least) {
      least = distance;
      nearest = row.name;
    }
  }
  // A third of the letters wrong is still a typo; more is another word.
  return least * 3 <= std::max(nearest.size(), folded.size()) ? nearest : std::string_view{};
}

std::string environment_name(std::string_view name) {
  std::string variable = "STAGEWIRE_";
  for (const char c : name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

std::string value_text(const Row& row, const NodeConfig& config) {
  struct Visitor {
    const NodeConfig& config;
    std::string operator()(bool C::* field) const { return config.*field ? "true" : "false"; }
    std::string operator()(std::uint32_t C::* field) const { return std::to_string(config.*field); }
    std::string operator()(std::uint64_t C::* field) const { return exact_size(config.*field); }
    std::string operator()(std::chrono::nanoseconds C::* field) const {
      return exact_duration(config.*field);
    }
    std::string operator()(std::string C::* field) const { return config.*field; }
    std::string operator()(std::vector<std::string> C::* field) const { return join(config.*field); }
  };
  return std::visit(Visitor{config}, row.field);
}

std::string bound_text(const Row& row, std::uint64_t bound) {
  switch (row.type()) {
    case OptionType::integer:
      return std::to_string(bound);
    case OptionType::size:
      return exact_size(bound);
    case OptionType::duration:
      return exact_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(bound)));
    case OptionType::boolean:
    case OptionType::text:
    case OptionType::text_list:
    case OptionType::choice:
    case OptionType::choice_list:
      break;
  }
  return {};
}

std::string expectation(const Row& row) {
  const std::string range = " from " + bound_text(row, row.minimum) + " to " + bound_text(row, row.maximum);
  switch (row.type()) {
    case OptionType::boolean:
      return "true or false";
    case OptionType::integer:
      return "a whole number" + range;
    case OptionType::size:
      return "a size" + range;
    case OptionType::duration:
      return "a duration" + range;
    case OptionType::text:
      return "a text";
    case OptionType::text_list:
      return "a list of texts";
    case OptionType::choice:
      return "one of " + join_choices(row.choices);
    case OptionType::choice_list:
      break;
  }
  return "a list out of " + join_choices(row.choices);
}

}  // namespace config

std::string_view to_string(OptionType type) noexcept {
  switch (type) {
    case OptionType::boolean:
      return "boolean";
    case OptionType::integer:
      return "integer";
    case OptionType::size:
      return "size";
    case OptionType::duration:
      return "duration";
    case OptionType::text:
      return "text";
    case OptionType::text_list:
      return "list of texts";
    case OptionType::choice:
      return "choice";
    case OptionType::choice_list:
      return "list of choices";
  }
  return "unknown";
}

std::span<const ConfigOption> config_options() {
  static const std::vector<ConfigOption> options = [] {
    const NodeConfig defaults;
    std::vector<ConfigOption> made;
    made.reserve(config::kRows.size());
    for (const config::Row& row : config::kRows) {
      made.push_back({std::string(row.name), row.type(), std::string(row.doc),
                      config::value_text(row, defaults), config::bound_text(row, row.minimum),
                      config::bound_text(row, row.maximum),
                      std::vector<std::string>(row.choices.begin(), row.choices.end()),
                      config::environment_name(row.name), row.secret});
    }
    return made;
  }();
  return options;
}

std::string config_markdown() {
  std::string text =
      "| option | type | default | allowed | environment | meaning |\n|---|---|---|---|---|---|\n";
  for (const ConfigOption& option : config_options()) {
    std::string allowed;
    if (!option.choices.empty()) {
      for (const std::string& choice : option.choices)
        allowed += (allowed.empty() ? "`" : ", `") + choice + '`';
    } else if (!option.maximum.empty()) {
      allowed = option.minimum + " … " + option.maximum;
    }
    const std::string shown = option.default_text.empty() ? "" : '`' + option.default_text + '`';
    text += "| `" + option.name + "` | " + std::string(to_string(option.type)) + " | " + shown + " | " +
            allowed + " | `" + option.environment + "` | " + option.doc + " |\n";
  }
  return text;
}

}  // namespace stagewire
