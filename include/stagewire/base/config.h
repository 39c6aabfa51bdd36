// A node's configuration: a plain struct, and the ways to fill it from a YAML file, a dict, the environment
// or a command line. All of them, the `--help` texts and docs/configuration.md come from one table of options
// (src/base/config_table.cc). Everything here is a pure function or a value; any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <stagewire/base/result.h>

namespace stagewire {

/// How a node behaves. Every field is an option of the same name; the initializers are the defaults. Fill it
/// by hand or through load_config(); a node calls validate() on it either way. Sizes are bytes.
struct NodeConfig {
  // Identity and security.
  std::string name;         ///< for logs, metrics and errors; empty: made from the process id
  std::string secret;       ///< the shared secret as printed by `stagewire keygen`; empty: none
  std::string secret_file;  ///< path of a file that holds the secret; empty: none
  bool insecure = false;    ///< serve TCP, loopback included, without a secret

  // Addresses.
  std::vector<std::string> listen{"127.0.0.1:0"};  ///< "host:port" or "[v6]:port"; port 0: any free one
  std::vector<std::string> advertise;  ///< addresses put into tickets instead of the listening ones
  std::string socket_dir;              ///< directory for Unix sockets; empty: abstract sockets

  // Memory.
  std::uint64_t publish_pool_size = 1ULL << 30;  ///< bytes that published payloads can hold
  std::uint64_t receive_pool_size = 1ULL << 30;  ///< bytes that received payloads can hold
  bool huge_pages = false;                       ///< ask for huge pages; what was obtained is reported
  bool touch_pools = true;                       ///< touch the pools' pages in the background at start
  std::uint32_t copy_threads = 0;                ///< threads for large copies; 0: chosen by CPU count
  std::uint64_t inline_limit = 8ULL << 10;       ///< payloads up to this many bytes travel inside the grant

  // Life of a payload.
  std::chrono::nanoseconds ttl = std::chrono::seconds(300);          ///< while no lease is held
  std::chrono::nanoseconds max_lifetime = std::chrono::minutes(30);  ///< withdrawn then, even while leased
  std::chrono::nanoseconds put_wait = std::chrono::seconds(10);      ///< how long put waits for memory
  std::chrono::nanoseconds get_deadline = std::chrono::seconds(30);  ///< where a caller gives none (Python)
  std::uint32_t max_waiting_claims = 4096;  ///< per peer: claims of keys that are not published yet
  std::uint32_t view_share_percent = 50;    ///< of the publish pool, that one peer may hold as views

  // Sessions.
  std::chrono::nanoseconds heartbeat = std::chrono::seconds(1);          ///< between two heartbeats
  std::chrono::nanoseconds lease = std::chrono::seconds(10);             ///< a silent peer's leases end then
  std::chrono::nanoseconds handshake_timeout = std::chrono::seconds(5);  ///< for a whole dial
  std::chrono::nanoseconds opening_timeout =
      std::chrono::seconds(2);             ///< for an accepted one to authenticate
  std::uint32_t max_unauthenticated = 64;  ///< accepted connections that have not authenticated yet
  std::uint32_t max_sessions = 4096;       ///< peers at the same time

  // Reads.
  std::chrono::nanoseconds abort_grace = std::chrono::seconds(2);  ///< past a deadline, to make memory safe
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);   ///< before a waiting caller sleeps
  std::vector<std::string> routes{"auto"};  ///< "auto", or the transports allowed, best first

  // TCP.
  std::uint32_t tcp_connections = 2;     ///< data connections per peer
  std::uint64_t tcp_chunk = 1ULL << 20;  ///< bytes of a payload per data frame
  std::uint32_t tcp_window = 4;          ///< chunks in flight per connection
  std::uint64_t tcp_buffer = 0;          ///< socket buffer, bytes; 0: the kernel's own tuning
  std::string tcp_congestion;            ///< congestion control by name; empty: the system's
  std::uint32_t data_threads = 2;        ///< threads that move TCP data

  // RDMA. The names that the verbs API has for them; docs/rdma.md says what each does.
  std::string rdma_device;                    ///< as ibv_devices lists it; empty: chosen
  std::uint32_t rdma_port = 0;                ///< 0: chosen
  std::uint32_t rdma_gid_index = 256;         ///< 256: chosen
  std::uint32_t rdma_mtu = 4096;              ///< bytes, at most
  std::uint32_t rdma_pkey_index = 0;          ///< partition
  std::uint32_t rdma_traffic_class = 0;       ///< RoCE: DSCP in the upper 6 of 8 bits
  std::uint32_t rdma_service_level = 0;       ///< InfiniBand's SL
  std::uint32_t rdma_hop_limit = 64;          ///< IP's time to live
  bool rdma_global_route = false;             ///< InfiniBand: a GRH also within one subnet
  std::uint32_t rdma_timeout = 14;            ///< local ACK timeout: 4.096 µs × 2^rdma_timeout
  std::uint32_t rdma_retry_count = 6;         ///< tries after the first; 7 is for ever on Soft-RoCE
  std::uint32_t rdma_rnr_retry = 6;           ///< 7: for ever
  std::uint32_t rdma_queue_pairs = 2;         ///< per peer, to read through
  std::uint32_t rdma_max_queue_pairs = 256;   ///< in all, in either direction
  std::uint32_t rdma_send_queue_depth = 128;  ///< requests per queue pair
  std::uint64_t rdma_chunk = 1ULL << 20;      ///< bytes of one RDMA READ
  std::uint64_t rdma_window = 16ULL << 20;    ///< bytes in flight per read
  std::chrono::nanoseconds rdma_spin = std::chrono::microseconds(20);  ///< before the poller sleeps
  std::chrono::nanoseconds rdma_abort_fence =
      std::chrono::milliseconds(50);  ///< before a queue pair is stopped
  std::chrono::nanoseconds rdma_connect_timeout = std::chrono::seconds(5);  ///< for queue pairs to a peer
  std::chrono::nanoseconds rdma_idle_timeout{0};  ///< unused queue pairs are closed then; 0: kept

  std::string log_level = "warn";  ///< trace, debug, info, warn, error or off

  friend bool operator==(const NodeConfig&, const NodeConfig&) = default;
};

/// A value as a dict or a command line gives it. Text is understood for every option ("4 GiB", "30 s",
/// "true", lists with commas); a number given for a duration means seconds.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
/// Options in the order given; the same name twice is an error.
using ConfigDict = std::vector<std::pair<std::string, ConfigValue>>;

/// What an option's value is.
enum class OptionType : std::uint8_t {
  boolean,
  integer,
  size,      ///< bytes
  duration,  ///< nanoseconds inside, with a unit in text
  text,
  text_list,
  choice,       ///< one of a fixed set of texts
  choice_list,  ///< texts of a fixed set
};

/// The name of a type as a person reads it, e.g. "size".
std::string_view to_string(OptionType type) noexcept;

/// One row of the table, as text, for help and docs.
struct ConfigOption {
  std::string name;
  OptionType type = OptionType::text;
  std::string doc;                   ///< one line
  std::string default_text;          ///< what to write to get the default; empty for empty text or list
  std::string minimum;               ///< empty where there is none
  std::string maximum;               ///< empty where there is none
  std::vector<std::string> choices;  ///< of choice and choice_list
  std::string environment;           ///< the variable that sets it: STAGEWIRE_ and the name in upper case
  bool secret = false;               ///< never printed
};

/// All options, in the order of the docs.
std::span<const ConfigOption> config_options();

/// Largest configuration file that is read.
inline constexpr std::size_t kMaxConfigFileSize = 1U << 20;

// Each setter below checks names, types and bounds, not what depends on several options (validate() does). On
// an Error (kind config, naming the source, the option, what was wrong and what was expected) `config` is
// unchanged.

/// Sets one option.
Status set_option(NodeConfig& config, std::string_view name, const ConfigValue& value);
/// Sets every option of `values`.
Status apply_dict(NodeConfig& config, const ConfigDict& values);
/// Sets the options of a YAML mapping from option names to scalars or lists. Empty text sets nothing.
/// Anchors, aliases, tags, duplicates and several documents are refused. `source` stands in errors.
Status apply_yaml(NodeConfig& config, std::string_view text, std::string_view source = "configuration");
/// The same from a regular file of at most kMaxConfigFileSize bytes.
Status apply_yaml_file(NodeConfig& config, const std::string& path);
/// Sets the options found among `variables` ("NAME=value"). A variable that is nearly an option's is an
/// error; other names starting with STAGEWIRE_ are somebody else's and are left alone.
Status apply_environment(NodeConfig& config, std::span<const std::string> variables);
/// The same from the environment of this process. Not while another thread changes it.
Status apply_environment(NodeConfig& config);

/// Where load_config() looks, least important first.
struct ConfigSources {
  std::optional<std::string> file;  ///< a YAML file
  bool environment = true;          ///< the STAGEWIRE_… variables of this process
  ConfigDict values;                ///< given explicitly: they win
};

/// The defaults, overridden by the file, by the environment, by the explicit values; validated.
Result<NodeConfig> load_config(const ConfigSources& sources);

/// Checks every bound and everything that depends on more than one option. Errors: config, naming the
/// options.
Status validate(const NodeConfig& config);

/// The effective values as YAML, one option a line, secrets redacted.
std::string describe(const NodeConfig& config);

/// The table of docs/configuration.md, as Markdown.
std::string config_markdown();

}  // namespace stagewire
