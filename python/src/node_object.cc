// See node_object.h.
#include "node_object.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "buffer_object.h"
#include "call.h"
#include "config_in.h"
#include "destination.h"
#include "errors.h"
#include "future_object.h"
#include "node_put.h"
#include "process.h"
#include "region_object.h"
#include "releases.h"
#include "ticket_object.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// A blocking get that lasts at most this long is not cut into slices: a signal missed by a hair is seen soon
// enough.
constexpr std::chrono::milliseconds kShortWait{100};

void create(NodeObject* self, nb::handle config, nb::handle config_file, bool environment,
            const nb::kwargs& options) {
  if (process_ending())
    raise(Error(ErrorKind::closed, "the interpreter is ending").with_operation("create node"));
  nb::dict values;
  if (!config.is_none()) {
    if (PyDict_Check(config.ptr()) == 0) {
      raise(Error(ErrorKind::config, std::string("config is of type ") +
                                         nb::type_name(config.type()).c_str() +
                                         "; expected a dict of options"));
    }
    values.update(nb::borrow<nb::dict>(config));
  }
  values.update(options);
  NodeConfig made = config_from(values, config_file, environment);
  Result<std::shared_ptr<Node>> node = [&made] {
    const Unlocked unlocked;
    return Node::create(std::move(made));
  }();
  if (!node.ok()) raise(node.error());
  close_at_exit(*node);
  new (self) NodeObject(std::move(*node));
}

struct GetArguments {
  GetOptions options{Deadline::now()};
  Handover handover;
};

GetArguments get_arguments(const Node& node, nb::handle timeout, bool view, nb::handle into,
                           std::string reader, nb::handle framework, bool details, bool wait) {
  drain_releases();
  GetArguments out;
  out.handover = {.framework = framework_from(framework, "get"), .details = details};
  out.options.deadline =
      Deadline::in(optional_seconds(timeout, "get", "timeout").value_or(node.config().get_deadline));
  out.options.reader = std::move(reader);
  out.options.wait = wait;
  if (view) out.options.placement = Placement::view;
  if (!into.is_none()) {
    if (view) raise_invalid("get", "view and into exclude each other");
    set_destination(out.options, into);
    nb::module_::import_("stagewire._lifecycle").attr("start_reaper")();
  }
  return out;
}

// The node's own blocking get is the fast one: it spins briefly, and its thread is woken directly. It cannot
// look for signals while it sleeps, so a long wait of the main thread goes by a handle.
Result<Got> blocking_get(const std::shared_ptr<Node>& node, const Source& source, GetOptions options) {
  const bool main = on_main_thread();
  if (!main || options.deadline.left() <= kShortWait) {
    Result<Got> got = [&] {
      const Unlocked unlocked;
      return node->get(source, std::move(options));
    }();
    if (main) run_signal_handlers();
    return got;
  }
  const Deadline certain(options.deadline.at() + node->config().abort_grace + std::chrono::seconds(5));
  GetHandle handle = node->get_async(source, std::move(options));
  try {
    static_cast<void>(wait_interruptibly(handle, certain));
  } catch (nb::python_error&) {
    abandon(handle, *node);
    throw;
  }
  return handle.take();
}

nb::object get(NodeObject& self, nb::handle source, nb::handle key, std::string from_stage,
               std::string to_stage, std::string name_space, nb::handle timeout, bool view, nb::handle into,
               std::string reader, nb::handle framework, bool details, bool wait) {
  const std::shared_ptr<Node> node = self.node;
  const Source from =
      source_from(source, key, std::move(from_stage), std::move(to_stage), std::move(name_space));
  GetArguments arguments =
      get_arguments(*node, timeout, view, into, std::move(reader), framework, details, wait);
  return hand_over(blocking_get(node, from, std::move(arguments.options)), arguments.handover);
}

FutureObject get_async(NodeObject& self, nb::handle source, nb::handle key, std::string from_stage,
                       std::string to_stage, std::string name_space, nb::handle timeout, bool view,
                       nb::handle into, std::string reader, nb::handle framework, bool details, bool wait) {
  const Source from =
      source_from(source, key, std::move(from_stage), std::move(to_stage), std::move(name_space));
  GetArguments arguments =
      get_arguments(*self.node, timeout, view, into, std::move(reader), framework, details, wait);
  const Deadline deadline = arguments.options.deadline;
  GetHandle handle = self.node->get_async(from, std::move(arguments.options));
  return {.handle = std::move(handle),
          .node = self.node,
          .handover = arguments.handover,
          .deadline = deadline,
          .outcome = {}};
}

nb::list get_many(NodeObject& self, nb::handle sources, nb::handle timeout, bool view, nb::handle into,
                  std::string reader, nb::handle framework, bool details, bool wait) {
  const std::shared_ptr<Node> node = self.node;
  std::vector<Source> from;
  for (nb::handle source : nb::iter(sources)) from.push_back(source_from_entry(source));
  const GetArguments common =
      get_arguments(*node, timeout, view, nb::none(), std::move(reader), framework, details, wait);
  std::vector<GetOptions> options(from.size(), common.options);
  if (!into.is_none()) {
    if (PyList_Check(into.ptr()) == 0 ||
        static_cast<std::size_t>(PyList_GET_SIZE(into.ptr())) != from.size()) {
      raise_invalid(
          "get", "into of get_many is a list with one entry per source (an array, a list of arrays or None)");
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      const nb::handle entry = PyList_GET_ITEM(into.ptr(), static_cast<Py_ssize_t>(i));
      if (!entry.is_none()) set_destination(options[i], entry);
    }
    nb::module_::import_("stagewire._lifecycle").attr("start_reaper")();
  }
  std::vector<GetHandle> handles = node->get_many_async(from, options);
  const Deadline certain(common.options.deadline.at() + node->config().abort_grace + std::chrono::seconds(5));
  nb::list results;
  try {
    for (const GetHandle& handle : handles) static_cast<void>(wait_interruptibly(handle, certain));
  } catch (nb::python_error&) {
    for (GetHandle& handle : handles) handle.cancel();
    for (GetHandle& handle : handles) abandon(handle, *node);
    throw;
  }
  for (GetHandle& handle : handles) {
    Result<Got> got = handle.take();
    results.append(got.ok() ? hand_over(std::move(got), common.handover) : exception_of(got.error()));
  }
  return results;
}

bool withdraw(NodeObject& self, nb::handle what, std::string from_stage, std::string to_stage,
              std::string name_space) {
  Key key;
  std::uint64_t generation = 0;
  if (nb::isinstance<Ticket>(what)) {
    const Ticket& ticket = *nb::inst_ptr<Ticket>(what);
    key = ticket.key;
    generation = ticket.generation;
  } else if (PyUnicode_Check(what.ptr()) != 0) {
    key = Key{.name_space = std::move(name_space),
              .from_stage = std::move(from_stage),
              .to_stage = std::move(to_stage),
              .key = nb::cast<std::string>(what)};
  } else {
    raise_invalid("withdraw", "expected a Ticket or a key");
  }
  const Unlocked unlocked;
  return self.node->withdraw(key, generation);
}

nb::dict pool_dict(const PoolStats& pool) {
  nb::dict out;
  out["size"] = pool.size;
  out["used"] = pool.used;
  out["largest_free"] = pool.largest_free;
  out["buffers"] = pool.buffers;
  out["waiting"] = pool.waiting;
  out["peak_used"] = pool.peak_used;
  out["failed"] = pool.failed;
  out["bad_releases"] = pool.bad_releases;
  out["touched"] = pool.touched;
  return out;
}

template <typename Call>
auto unlocked(Call call) {
  const Unlocked given_up;
  return call();
}

}  // namespace

NodeObject::~NodeObject() {
  // Its last reference closes the node, which may wait for reads to settle.
  const Unlocked unlocked;
  node.reset();
}

nb::dict stats_dict(const NodeStats& stats) {
  nb::dict out;
  out["published"] = stats.published;
  out["leases"] = stats.leases;
  out["waiting_claims"] = stats.waiting_claims;
  out["running_gets"] = stats.running_gets;
  out["sessions"] = stats.sessions;
  out["views"] = stats.views;
  out["quarantined"] = stats.quarantined;
  out["regions"] = stats.regions;
  out["region_bytes"] = stats.region_bytes;
  out["publish_pool"] = pool_dict(stats.publish_pool);
  out["receive_pool"] = pool_dict(stats.receive_pool);
  return out;
}

void bind_node(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NodeObject>(m, "Node", nb::is_weak_referenceable(),
                         "One process taking part: publishes and gets.")
      .def("__init__", &create, "config"_a.none() = nb::none(), nb::kw_only(),
           "config_file"_a.none() = nb::none(), "environment"_a = true, "options"_a,
           "Starts a node. Options come from `config_file` (YAML), the STAGEWIRE_… environment variables, "
           "`config` and "
           "the keywords; later ones win. Raises ConfigError.",
           Guard())
      .def("put", &put, "key"_a, "payload"_a.none(), nb::kw_only(), "from_stage"_a = "", "to_stage"_a = "",
           "namespace"_a = "", "readers"_a = 1, "ttl"_a.none() = nb::none(),
           "max_lifetime"_a.none() = nb::none(), "timeout"_a.none() = nb::none(),
           "default"_a.none() = nb::none(),
           "Copies the payload and publishes it under `key`, replacing what is there.", Guard())
      .def(
          "allocate",
          [](const NodeObject& self, nb::handle nbytes, nb::handle timeout) {
            drain_releases();
            const std::shared_ptr<Node> node = self.node;
            return allocate_buffer(node, nbytes, timeout);
          },
          "nbytes"_a.none(), nb::kw_only(), "timeout"_a.none() = nb::none(),
          "Memory of the publish pool for put_in_place; waits for it at most `timeout` seconds.", Guard())
      .def(
          "register",
          [](const NodeObject& self, nb::handle obj, std::string name) {
            drain_releases();
            const std::shared_ptr<Node> node = self.node;
            return register_region(node, obj, std::move(name));
          },
          "obj"_a.none(), nb::kw_only(), "name"_a = "region",
          "Registers memory of your own (an array, a tensor, a buffer) for put_in_place; `obj` is kept until "
          "no peer can read it any more.",
          Guard())
      .def(
          "put_in_place", &put_in_place, "key"_a, "payload"_a.none(), "memory"_a.none(), nb::kw_only(),
          "from_stage"_a = "", "to_stage"_a = "", "namespace"_a = "", "readers"_a = 1,
          "ttl"_a.none() = nb::none(), "max_lifetime"_a.none() = nb::none(), "default"_a.none() = nb::none(),
          "Publishes a payload whose tensors lie in `memory` (a Buffer or a Region, or several of either) "
          "under `key`, without a copy. Write to that memory only once the publication's `released` is done.",
          Guard())
      .def("get", &get, "source"_a, "key"_a.none() = nb::none(), nb::kw_only(), "from_stage"_a = "",
           "to_stage"_a = "", "namespace"_a = "", "timeout"_a.none() = nb::none(), "view"_a = false,
           "into"_a.none() = nb::none(), "reader"_a = "", "framework"_a = "numpy", "details"_a = false,
           "wait"_a = true, "Waits for the payload of a ticket, or of a key at an address.", Guard())
      .def("get_async", &get_async, "source"_a, "key"_a.none() = nb::none(), nb::kw_only(),
           "from_stage"_a = "", "to_stage"_a = "", "namespace"_a = "", "timeout"_a.none() = nb::none(),
           "view"_a = false, "into"_a.none() = nb::none(), "reader"_a = "", "framework"_a = "numpy",
           "details"_a = false, "wait"_a = true, "As get, without waiting: returns a Future.", Guard())
      .def("get_many", &get_many, "sources"_a, nb::kw_only(), "timeout"_a.none() = nb::none(),
           "view"_a = false, "into"_a.none() = nb::none(), "reader"_a = "", "framework"_a = "numpy",
           "details"_a = false, "wait"_a = true,
           "Gets many at once. The list has a payload or an Error for each source.", Guard())
      .def("withdraw", &withdraw, "what"_a, nb::kw_only(), "from_stage"_a = "", "to_stage"_a = "",
           "namespace"_a = "", "Withdraws what a ticket or key names. False if there was nothing.", Guard())
      .def(
          "withdraw_prefix",
          [](const NodeObject& self, const std::string& prefix, const std::string& name_space) {
            return unlocked([&] { return self.node->withdraw_prefix(name_space, prefix); });
          },
          "prefix"_a, nb::kw_only(), "namespace"_a = "",
          "Withdraws every payload of a namespace whose key starts with `prefix`, whatever its stages. "
          "Returns "
          "how many.",
          Guard())
      .def(
          "withdraw_everywhere",
          [](const NodeObject& self, const std::string& key, const std::string& name_space) {
            return unlocked([&] { return self.node->withdraw_everywhere(name_space, key); });
          },
          "key"_a, nb::kw_only(), "namespace"_a = "",
          "Withdraws the key on every edge of a namespace. Returns how many payloads that were.", Guard())
      .def(
          "connect",
          [](const NodeObject& self, const std::string& address) {
            unlocked([&] { self.node->connect(address); });
          },
          "address"_a, "Starts connecting to an address; never waits.", Guard())
      .def(
          "connected",
          [](const NodeObject& self, const std::string& address) {
            return unlocked([&] { return self.node->connected(address); });
          },
          "address"_a, "Whether a session to the node at this address is up.", Guard())
      .def(
          "listen",
          [](const NodeObject& self, const std::string& address) {
            return value_or_raise(unlocked([&] { return self.node->listen(address); }));
          },
          "address"_a, "Listens on one more address; returns it with the real port.", Guard())
      .def(
          "unlisten",
          [](const NodeObject& self, const std::string& address) {
            return unlocked([&] { return self.node->unlisten(address); });
          },
          "address"_a, "Stops listening there. False if it was not.", Guard())
      .def_prop_ro(
          "id", [](const NodeObject& self) { return self.node->id().hex(); }, Guard())
      .def_prop_ro(
          "addresses",
          [](const NodeObject& self) { return unlocked([&] { return self.node->addresses(); }); }, Guard())
      .def_prop_ro(
          "address",
          [](const NodeObject& self) {
            const auto all = unlocked([&] { return self.node->addresses(); });
            return all.empty() ? std::string() : all.front();
          },
          Guard())
      .def_prop_ro(
          "config", [](const NodeObject& self) { return describe(self.node->config()); }, Guard())
      .def(
          "stats",
          [](const NodeObject& self) { return stats_dict(unlocked([&] { return self.node->stats(); })); },
          Guard())
      .def(
          "metrics",
          [](const NodeObject& self) { return unlocked([&] { return self.node->metrics_text(); }); }, Guard())
      .def(
          "explain", [](const NodeObject& self) { return unlocked([&] { return self.node->explain(); }); },
          Guard())
      .def(
          "close",
          [](const NodeObject& self) {
            const std::shared_ptr<Node> node = self.node;
            unlocked([&] { node->close(); });
            drain_releases();
          },
          Guard())
      .def_prop_ro(
          "closed", [](const NodeObject& self) { return self.node->closed(); }, Guard())
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); }, Guard())
      .def(
          "__exit__",
          [](const NodeObject& self, const nb::args&) {
            const std::shared_ptr<Node> node = self.node;
            unlocked([&] { node->close(); });
            drain_releases();
          },
          Guard())
      .def(
          "__repr__",
          [](const NodeObject& self) {
            const auto all = unlocked([&] { return self.node->addresses(); });
            return "<stagewire.Node " + self.node->id().brief() + (all.empty() ? "" : " at " + all.front()) +
                   (self.node->closed() ? ", closed>" : ">");
          },
          Guard());
}

}  // namespace stagewire::python
