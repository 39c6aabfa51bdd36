// See connector.h. Every fault becomes "no", a count and a logged reason here.
#include <map>
#include <utility>

#include <stagewire/connector/connector.h>

#include "connector/outward_address.h"
#include "session/address.h"

namespace stagewire {

namespace {

// Stands in the place of a generation that ended before put() knew its number.
constexpr std::uint64_t kEnded = ~std::uint64_t{0};

bool means_auto(const std::string& host) {
  return host.empty() || host == "auto" || host == "*" || host == "0.0.0.0" || host == "::";
}

std::string address_text(const std::string& host, std::uint16_t port) {
  Address address;
  address.host = host;
  address.port = port;
  return address.to_string();
}

}  // namespace

Result<ConnectorRole> parse_connector_role(std::string_view text) {
  if (text == "sender") return ConnectorRole::sender;
  if (text == "receiver") return ConnectorRole::receiver;
  if (text == "dual") return ConnectorRole::dual;
  return Error(ErrorKind::config, "role is '" + std::string(text) + "'; expected sender, receiver or dual");
}

Result<std::shared_ptr<Connector>> Connector::create(std::shared_ptr<Node> node, ConnectorOptions options,
                                                     LogSink log) {
  std::shared_ptr<Connector> connector(new Connector(std::move(node), std::move(options), std::move(log)));
  STAGEWIRE_TRY(connector->start());
  return connector;
}

// The generations that close() withdraws: those of this connector alone, since others may share its
// namespace.
struct Connector::Published {
  std::mutex mutex;
  std::map<std::uint64_t, Key> by_generation;
};

Connector::Connector(std::shared_ptr<Node> node, ConnectorOptions options, LogSink log)
    : node_(std::move(node)),
      options_(std::move(options)),
      log_(std::move(log)),
      published_(std::make_shared<Published>()),
      sender_host_(options_.sender_host),
      sender_port_(options_.sender_port) {}

Connector::~Connector() {
  close();
}

Status Connector::start() {
  if (options_.role == ConnectorRole::receiver) return {};
  const NodeConfig& config = node_->config();
  const bool tcp = !config.secret.empty() || !config.secret_file.empty() || config.insecure;
  std::string host = options_.host;
  if (means_auto(host)) host = tcp ? outward_address() : "127.0.0.1";
  if (!tcp && options_.port == 0) {
    return Error(ErrorKind::config,
                 "port is 0 and no secret is configured: without a secret a sender is found on this host by "
                 "its port number; "
                 "give a port, or a secret (stagewire keygen)");
  }
  Result<std::string> bound = node_->listen(address_text(host, options_.port));
  if (!bound.ok()) return std::move(bound.error().with_operation("connector"));
  STAGEWIRE_ASSIGN(const Address address, Address::parse(*bound));
  host_ = address.host;
  port_ = address.port;
  name_space_ = options_.name_space.empty() ? std::to_string(port_) : options_.name_space;
  return {};
}

ConnectorPut Connector::put(const std::string& from_stage, const std::string& to_stage,
                            const std::string& key, const Payload& payload) {
  ConnectorPut outcome;
  if (closed()) {
    report("warning", "put of '" + key + "' on a closed connector");
    return outcome;
  }
  if (options_.role == ConnectorRole::receiver) {
    report("warning", "put of '" + key + "' on a connector whose role is receiver; use sender or dual");
    return outcome;
  }
  PutOptions options;
  options.deadline = Deadline::in(options_.put_wait);
  options.ttl = options_.ttl;
  // The end may be told before put returns, and long after this connector is gone.
  auto generation = std::make_shared<std::uint64_t>(0);
  options.released = [published = published_, generation](EndReason) {
    const std::lock_guard lock(published->mutex);
    if (published->by_generation.erase(*generation) == 0) *generation = kEnded;
  };
  Result<Ticket> ticket =
      node_->put(Key{.name_space = name_space_, .from_stage = from_stage, .to_stage = to_stage, .key = key},
                 payload, std::move(options));
  if (!ticket.ok()) {
    report("error", ticket.error().to_string());
    note_error(ticket.error());
    const std::lock_guard lock(mutex_);
    ++counts_.put_failures;
    return outcome;
  }
  {
    const std::lock_guard lock(published_->mutex);
    if (*generation != kEnded) {
      *generation = ticket->generation;
      published_->by_generation.emplace(ticket->generation, ticket->key);
    }
  }
  outcome.ok = true;
  outcome.size = ticket->size;
  outcome.metadata = ConnectorMetadata{
      .source_host = host_, .source_port = port_, .ticket = ticket->to_text(), .data_size = ticket->size};
  const std::lock_guard lock(mutex_);
  ++counts_.puts;
  counts_.bytes_put += ticket->size;
  return outcome;
}

std::optional<Source> Connector::source_of(const std::string& from_stage, const std::string& to_stage,
                                           const std::string& key,
                                           const std::optional<ConnectorMetadata>& metadata) {
  std::string host;
  std::uint16_t port = 0;
  if (metadata) {
    host = metadata->source_host;
    port = metadata->source_port;
  }
  if (host.empty() || port == 0) {
    const std::lock_guard lock(mutex_);
    if (host.empty()) host = sender_host_;
    if (port == 0) port = sender_port_;
  }
  if (host.empty() || host == "auto" || port == 0) {
    report("error", "get of '" + key +
                        "': no sender is known; give metadata with source_host and source_port, or call " +
                        "update_sender_info, or configure sender_host and sender_zmq_port");
    const std::lock_guard lock(mutex_);
    ++counts_.get_failures;
    return std::nullopt;
  }
  const std::string name_space = options_.name_space.empty() ? std::to_string(port) : options_.name_space;
  Source source =
      Source::at(address_text(host, port),
                 Key{.name_space = name_space, .from_stage = from_stage, .to_stage = to_stage, .key = key});
  if (metadata && metadata->ticket) {
    // The ticket saves nothing but a wrong generation: the address that the caller was told is the one to
    // ask.
    if (Result<Ticket> ticket = Ticket::parse(*metadata->ticket); ticket.ok()) {
      source.node = ticket->node;
      source.generation = ticket->generation;
      source.key = ticket->key;
    } else {
      report("warning", "get of '" + key + "': " + ticket.error().to_string() + "; asking by key");
    }
  }
  return source;
}

std::optional<Got> Connector::get(const std::string& from_stage, const std::string& to_stage,
                                  const std::string& key, const std::optional<ConnectorMetadata>& metadata,
                                  Placement placement) {
  if (closed()) return std::nullopt;
  const std::optional<Source> source = source_of(from_stage, to_stage, key, metadata);
  if (!source) return std::nullopt;
  const std::string& address = source->addresses.front();
  if (!node_->connected(address) && !node_->is_own(address)) {
    start_connecting(address);
    return std::nullopt;
  }
  GetOptions options(Deadline::in(node_->config().get_deadline));
  options.placement = placement;
  options.wait = false;
  return run_get(*source, std::move(options));
}

void Connector::start_connecting(const std::string& address) {
  node_->connect(address, [weak = weak_from_this(), address](const Status& status) {
    const auto self = weak.lock();
    if (!self || status.ok() || self->closed()) return;
    const std::string text = "connecting to " + address + ": " + status.error().to_string();
    {
      const std::lock_guard lock(self->mutex_);
      // A caller that polls tries again and again: one line for each new reason.
      if (self->counts_.last_error == text) return;
      self->counts_.last_error = text;
    }
    self->report("warning", text);
  });
}

std::optional<Got> Connector::get_with_deadline(const std::string& from_stage, const std::string& to_stage,
                                                const std::string& key,
                                                const std::optional<ConnectorMetadata>& metadata,
                                                Deadline deadline, Placement placement, bool interruptible) {
  if (closed()) return std::nullopt;
  const std::optional<Source> source = source_of(from_stage, to_stage, key, metadata);
  if (!source) return std::nullopt;
  GetOptions options(deadline);
  options.placement = placement;
  options.interruptible = interruptible;
  return run_get(*source, std::move(options));
}

std::optional<Got> Connector::run_get(const Source& source, GetOptions options) {
  Result<Got> got = node_->get(source, std::move(options));
  if (got.ok()) {
    const std::lock_guard lock(mutex_);
    ++counts_.gets;
    counts_.bytes_got += got->size;
    return std::move(got).value();
  }
  const ErrorKind kind = got.error().kind();
  if (kind == ErrorKind::not_found || kind == ErrorKind::interrupted)
    return std::nullopt;  // what a poll expects to hear
  const bool timeout = kind == ErrorKind::deadline_exceeded;
  report(timeout ? "warning" : "error", got.error().to_string());
  note_error(got.error());
  const std::lock_guard lock(mutex_);
  ++(timeout ? counts_.timeouts : counts_.get_failures);
  return std::nullopt;
}

void Connector::update_sender_info(const std::string& host, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  sender_host_ = host;
  sender_port_ = port;
}

bool Connector::cleanup(const std::string& key, const std::optional<std::string>& from_stage,
                        const std::optional<std::string>& to_stage) {
  if (closed() || options_.role == ConnectorRole::receiver) return false;
  Key wanted{.name_space = name_space_, .from_stage = {}, .to_stage = {}, .key = key};
  if (from_stage && to_stage) {
    wanted.from_stage = *from_stage;
    wanted.to_stage = *to_stage;
    return node_->withdraw(wanted);
  }
  const std::size_t at = key.rfind('@');
  const std::size_t bar = at == std::string::npos ? at : key.find('_', at);
  if (bar != std::string::npos) {
    wanted.key = key.substr(0, at);
    wanted.from_stage = key.substr(at + 1, bar - at - 1);
    wanted.to_stage = key.substr(bar + 1);
    if (node_->withdraw(wanted)) return true;
  }
  return node_->withdraw_everywhere(name_space_, key) != 0;
}

ConnectorHealth Connector::health() const {
  ConnectorHealth health;
  {
    const std::lock_guard lock(mutex_);
    health = counts_;
  }
  health.host = host_;
  health.port = port_;
  if (closed()) {
    health.problem = "the connector is closed";
    return health;
  }
  if (node_->closed()) {
    health.problem = "the node is closed";
    return health;
  }
  health.node = node_->stats();
  health.healthy = true;
  return health;
}

void Connector::close() {
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  std::map<std::uint64_t, Key> mine;
  {
    const std::lock_guard lock(published_->mutex);
    mine.swap(published_->by_generation);
  }
  for (const auto& [generation, key] : mine) node_->withdraw(key, generation);
  if (port_ != 0) node_->unlisten(address_text(host_, port_));
}

void Connector::report(std::string_view level, const std::string& text) const {
  if (log_) log_(level, text);
}

void Connector::note_error(const Error& error) {
  const std::lock_guard lock(mutex_);
  counts_.last_error = error.to_string();
}

}  // namespace stagewire
