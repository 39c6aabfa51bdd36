// See bench_node.h.
#include "bench/bench_node.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sys/resource.h>
#include <thread>
#include <utility>

#include "session/handshake.h"

namespace stagewire::tools {

namespace {

constexpr std::chrono::seconds kGuard{60};

// A directory of its own for a node's Unix socket, removed as soon as this goes.
class HiddenDirectory {
 public:
  static Result<std::unique_ptr<HiddenDirectory>> make() {
    std::string path = "/tmp/stagewire-bench-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return Error::from_errno(errno, "making " + path);
    auto directory = std::make_unique<HiddenDirectory>();
    directory->path_ = path;
    return directory;
  }
  HiddenDirectory() = default;
  ~HiddenDirectory() {
    std::error_code ignored;  // nothing can be done about it, and the name is in nobody's way
    std::filesystem::remove_all(path_, ignored);
  }
  HiddenDirectory(const HiddenDirectory&) = delete;
  HiddenDirectory& operator=(const HiddenDirectory&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// Waits by the pool's own count of touched bytes.
Status await_touched(const Pool& pool) {
  const Deadline deadline = Deadline::in(kGuard);
  for (;;) {
    const PoolStats stats = pool.occupancy();
    if (stats.touched >= stats.size) return {};
    if (deadline.passed()) {
      return Error(ErrorKind::deadline_exceeded, "the memory of the " + pool.name() +
                                                     " could not be touched in " +
                                                     "time; is there enough free memory?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

Result<std::shared_ptr<Node>> start_bench_node(const NodeSettings& settings, const OptionList& base,
                                               bool tcp_only) {
  STAGEWIRE_ASSIGN(NodeConfig config, node_config(settings, base));
  std::unique_ptr<HiddenDirectory> hidden;
  if (tcp_only) {
    STAGEWIRE_ASSIGN(hidden, HiddenDirectory::make());
    config.socket_dir = hidden->path();
  }
  STAGEWIRE_ASSIGN(std::shared_ptr<Node> node, Node::create(config));
  hidden.reset();
  if (config.touch_pools) {
    STAGEWIRE_TRY(await_touched(*node->publish_pool()));
    STAGEWIRE_TRY(await_touched(*node->receive_pool()));
  }
  return node;
}

Key bench_key(const std::string& name) {
  return Key{.name_space = "bench", .from_stage = "sender", .to_stage = "receiver", .key = name};
}

PutOptions bench_put_options() {
  PutOptions options;
  options.ttl = std::chrono::hours(24);
  options.max_lifetime = std::chrono::hours(24);
  options.deadline = Deadline::in(std::chrono::seconds(10));
  return options;
}

std::int64_t cpu_nanoseconds() {
  rusage usage{};
  static_cast<void>(::getrusage(RUSAGE_SELF, &usage));
  const auto of = [](const timeval& time) { return (time.tv_sec * 1'000'000 + time.tv_usec) * 1000; };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

Result<std::unique_ptr<Pair>> Pair::start(const Options& options) {
  std::unique_ptr<Pair> pair(new Pair());
  OptionList base = options.base;
  base.emplace(base.begin(), "secret", generate_secret());
  STAGEWIRE_ASSIGN(pair->peer_, PeerProcess::spawn(options.peer_cpu));
  PeerProcess& peer = *pair->peer_;
  if (!options.settings.config_file.empty())
    STAGEWIRE_TRY(peer.call({"config", std::filesystem::absolute(options.settings.config_file).string()}));
  for (const std::string& item : options.settings.set) STAGEWIRE_TRY(peer.call({"set", item}));
  for (const auto& [name, value] : base) STAGEWIRE_TRY(peer.call({"base", name, value}));
  STAGEWIRE_TRY(peer.send({"start", options.way == Way::tcp ? "tcp" : "same-host"}));
  if (!options.own_cpus.empty()) pin_to(options.own_cpus);
  STAGEWIRE_ASSIGN(pair->node_, start_bench_node(options.settings, base, false));
  STAGEWIRE_ASSIGN(const Fields started, peer.answer());
  pair->address_ = started.at(0);
  STAGEWIRE_ASSIGN(pair->peer_id_, NodeId::parse(started.at(1)));
  pair->node_->connect(pair->address_);
  // A failing connection tells why only to a get: this one asks for a key that is not there.
  GetOptions probe(Deadline::in(std::chrono::seconds(20)));
  probe.wait = false;
  const Result<Got> probed = pair->node_->get(pair->at_peer("nothing"), probe);
  if (!probed.ok() && probed.error().kind() != ErrorKind::not_found) return probed.error();
  return pair;
}

Pair::~Pair() {
  if (node_) node_->close();
  node_.reset();
}

Source Pair::at_peer(const std::string& name) const {
  Source source = Source::at(address_, bench_key(name));
  source.node = peer_id_;
  return source;
}

Status Pair::make_buffer(std::uint64_t slot, std::uint64_t bytes) {
  STAGEWIRE_TRY(peer_->call({"buffer", std::to_string(slot), std::to_string(bytes)}));
  return {};
}

Result<Source> Pair::publish(const std::string& key, std::uint64_t slot, std::uint64_t bytes,
                             std::uint64_t tensors) {
  const std::string any = std::to_string(std::numeric_limits<std::uint32_t>::max());
  STAGEWIRE_ASSIGN(const Fields answer, peer_->call({"publish", key, std::to_string(slot),
                                                     std::to_string(bytes), std::to_string(tensors), any}));
  STAGEWIRE_ASSIGN(const Ticket ticket, Ticket::parse(answer.at(0)));
  return Source::of(ticket);
}

GetOptions Pair::get_options(Placement placement, std::optional<DestinationRange> into) {
  GetOptions options(Deadline::in(kGuard));
  options.placement = placement;
  if (into) options.into.push_back(*into);
  options.reader = "r" + std::to_string(readers_++);
  return options;
}

Result<Got> Pair::get(const Source& source, Placement placement, double& seconds,
                      std::optional<DestinationRange> into) {
  GetOptions options = get_options(placement, into);
  const auto start = std::chrono::steady_clock::now();
  Result<Got> got = node_->get(source, std::move(options));
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return got;
}

}  // namespace stagewire::tools
