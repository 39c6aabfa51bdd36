// See connector_object.h. What the connector logs is kept here until the Python side asks for it: it logs on
// threads without the interpreter lock.
#include "connector_object.h"

#include <atomic>
#include <mutex>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <utility>
#include <vector>

#include <stagewire/connector/connector.h>

#include "call.h"
#include "errors.h"
#include "memory_object.h"
#include "node_object.h"
#include "process.h"
#include "releases.h"
#include "tree_in.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// Lines beyond this are dropped: nobody has asked for them for a long time.
constexpr std::size_t kMaxLines = 1000;

class LogLines {
 public:
  void add(std::string_view level, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (lines_.size() < kMaxLines) lines_.emplace_back(level, text);
    any_.store(true, std::memory_order_release);
  }
  std::vector<std::pair<std::string, std::string>> take() {
    if (!any_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> lines_;  // guarded by mutex_
  std::atomic<bool> any_{false};
};

struct ConnectorObject {
  std::shared_ptr<LogLines> lines = std::make_shared<LogLines>();
  std::shared_ptr<Connector> connector;

  ConnectorObject() = default;
  ~ConnectorObject() {
    const Unlocked unlocked;
    connector.reset();
  }
  ConnectorObject(const ConnectorObject&) = delete;
  ConnectorObject& operator=(const ConnectorObject&) = delete;
};

std::uint16_t port_from(std::int64_t port, const char* name) {
  if (port < 0 || port > 65535) {
    raise(Error(ErrorKind::config,
                std::string(name) + " is " + std::to_string(port) + "; expected 0 to 65535"));
  }
  return static_cast<std::uint16_t>(port);
}

void create(ConnectorObject* self, const NodeObject& node, const std::string& role, std::string host,
            std::int64_t port, std::string sender_host, std::int64_t sender_port, std::string name_space,
            nb::handle ttl, nb::handle put_wait) {
  ConnectorOptions options;
  options.role = value_or_raise(parse_connector_role(role));
  options.host = std::move(host);
  options.port = port_from(port, "zmq_port");
  options.sender_host = std::move(sender_host);
  options.sender_port = port_from(sender_port, "sender_zmq_port");
  options.name_space = std::move(name_space);
  options.ttl = optional_seconds(ttl, "connector", "buffer_ttl_seconds");
  if (!put_wait.is_none()) options.put_wait = seconds_from(put_wait, "connector", "put_wait");
  new (self) ConnectorObject();
  Result<std::shared_ptr<Connector>> made = [&] {
    const Unlocked unlocked;
    return Connector::create(
        node.node, std::move(options),
        [lines = self->lines](std::string_view level, const std::string& text) { lines->add(level, text); });
  }();
  if (!made.ok()) {
    self->~ConnectorObject();
    raise(made.error());
  }
  self->connector = std::move(*made);
}

nb::object put(const ConnectorObject& self, const std::string& from_stage, const std::string& to_stage,
               const std::string& key, nb::handle payload, nb::handle fallback) {
  drain_releases();
  const ImportedTree tree = import_tree(payload, fallback);
  const std::shared_ptr<Connector> connector = self.connector;
  ConnectorPut done;
  {
    const Unlocked unlocked;
    done = connector->put(from_stage, to_stage, key, tree.payload);
  }
  nb::object metadata = nb::none();
  if (done.metadata) {
    nb::dict dict;
    dict["source_host"] = done.metadata->source_host;
    dict["source_port"] = done.metadata->source_port;
    if (done.metadata->data_size) dict["data_size"] = *done.metadata->data_size;
    if (done.metadata->ticket) dict["ticket"] = *done.metadata->ticket;
    metadata = std::move(dict);
  }
  return nb::make_tuple(done.ok, done.size, metadata);
}

std::optional<ConnectorMetadata> metadata_from(nb::handle host, std::int64_t port, nb::handle ticket) {
  if (host.is_none() && port == 0 && ticket.is_none()) return std::nullopt;
  ConnectorMetadata metadata;
  if (!host.is_none()) metadata.source_host = nb::cast<std::string>(host);
  metadata.source_port = port_from(port, "source_port");
  if (!ticket.is_none()) metadata.ticket = nb::cast<std::string>(ticket);
  return metadata;
}

// (payload, tensor bytes, whether the payload is one tensor, and so came as a flat NumPy array of its bytes),
// or None.
nb::object get(const ConnectorObject& self, const std::string& from_stage, const std::string& to_stage,
               const std::string& key, nb::handle host, std::int64_t port, nb::handle ticket,
               nb::handle timeout, nb::handle framework) {
  drain_releases();
  const auto metadata = metadata_from(host, port, ticket);
  const auto wait = optional_seconds(timeout, "get", "timeout");
  const Framework as = framework_from(framework, "get");
  const std::shared_ptr<Connector> connector = self.connector;
  std::optional<Got> got;
  const bool main = on_main_thread();
  {
    const Unlocked unlocked;
    got = wait ? connector->get_with_deadline(from_stage, to_stage, key, metadata, Deadline::in(*wait),
                                              Placement::copy, main)
               : connector->get(from_stage, to_stage, key, metadata);
  }
  if (main) run_signal_handlers();
  if (!got) return nb::none();
  const std::uint64_t size = got->size;
  if (const auto* ref = got->payload.root().get_if<TensorRef>()) {
    Tensor flat = got->payload.tensors()[ref->index];
    flat.shape = {static_cast<std::int64_t>(flat.bytes())};
    flat.strides.clear();
    flat.dtype = DType::u8;
    return nb::make_tuple(numpy_over(flat), size, true);
  }
  return nb::make_tuple(export_tree(got->payload, as), size, false);
}

nb::dict health(const ConnectorObject& self) {
  const std::shared_ptr<Connector> connector = self.connector;
  ConnectorHealth health;
  {
    const Unlocked unlocked;
    health = connector->health();
  }
  nb::dict out;
  out["status"] = health.healthy ? "healthy" : "unhealthy";
  if (!health.healthy) out["error"] = health.problem;
  out["host"] = health.host;
  out["zmq_port"] = health.port;
  out["puts"] = health.puts;
  out["gets"] = health.gets;
  out["bytes_transferred"] = health.bytes_put + health.bytes_got;
  out["bytes_put"] = health.bytes_put;
  out["bytes_got"] = health.bytes_got;
  out["errors"] = health.put_failures + health.get_failures;
  out["put_failures"] = health.put_failures;
  out["get_failures"] = health.get_failures;
  out["timeouts"] = health.timeouts;
  out["last_error"] = health.last_error;
  if (health.healthy) out["node"] = stats_dict(health.node);
  return out;
}

}  // namespace

void bind_connector(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<ConnectorObject>(m, "ConnectorCore", "What stagewire.Connector is made of.")
      .def("__init__", &create, "node"_a, nb::kw_only(), "role"_a, "host"_a, "port"_a, "sender_host"_a,
           "sender_port"_a, "namespace"_a, "ttl"_a.none(), "put_wait"_a.none(), Guard())
      .def("put", &put, "from_stage"_a, "to_stage"_a, "key"_a, "payload"_a.none(), "default"_a.none(),
           Guard())
      .def("get", &get, "from_stage"_a, "to_stage"_a, "key"_a, "host"_a.none(), "port"_a, "ticket"_a.none(),
           "timeout"_a.none(), "framework"_a, Guard())
      .def(
          "update_sender_info",
          [](const ConnectorObject& self, const std::string& host, std::int64_t port) {
            self.connector->update_sender_info(host, port_from(port, "sender_zmq_port"));
          },
          "host"_a, "port"_a, Guard())
      .def(
          "cleanup",
          [](const ConnectorObject& self, const std::string& key,
             const std::optional<std::string>& from_stage, const std::optional<std::string>& to_stage) {
            const std::shared_ptr<Connector> connector = self.connector;
            const Unlocked unlocked;
            return connector->cleanup(key, from_stage, to_stage);
          },
          "key"_a, "from_stage"_a.none() = nb::none(), "to_stage"_a.none() = nb::none(), Guard())
      .def("health", &health, Guard())
      .def(
          "take_log",
          [](const ConnectorObject& self) {
            nb::list out;
            for (const auto& [level, text] : self.lines->take()) out.append(nb::make_tuple(level, text));
            return out;
          },
          Guard())
      .def_prop_ro(
          "host", [](const ConnectorObject& self) { return self.connector->host(); }, Guard())
      .def_prop_ro(
          "port", [](const ConnectorObject& self) { return self.connector->port(); }, Guard())
      .def(
          "close",
          [](const ConnectorObject& self) {
            const std::shared_ptr<Connector> connector = self.connector;
            const Unlocked unlocked;
            connector->close();
          },
          Guard());
}

}  // namespace stagewire::python
