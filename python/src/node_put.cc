// See node_put.h.
#include "node_put.h"

#include <limits>
#include <memory>
#include <utility>

#include "base/oneshot.h"
#include "call.h"
#include "errors.h"
#include "in_place_memory.h"
#include "process.h"
#include "released_object.h"
#include "releases.h"
#include "tree_in.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// What every way to publish can be told.
PutOptions put_options(std::int64_t readers, nb::handle ttl, nb::handle max_lifetime) {
  PutOptions options;
  if (readers < 1 || readers > std::numeric_limits<std::uint32_t>::max()) {
    raise_invalid("put", "readers is " + std::to_string(readers) + "; expected at least 1");
  }
  options.readers = static_cast<std::uint32_t>(readers);
  options.ttl = optional_seconds(ttl, "put", "ttl");
  options.max_lifetime = optional_seconds(max_lifetime, "put", "max_lifetime");
  return options;
}

// By when a publication is withdrawn whatever happens; the rest is what the loop may be late.
Deadline certainly_withdrawn(const PutOptions& options, const NodeConfig& config) {
  return Deadline::in(options.max_lifetime.value_or(config.max_lifetime) + config.abort_grace +
                      std::chrono::seconds(5));
}

}  // namespace

Ticket put(NodeObject& self, std::string key, nb::handle payload, std::string from_stage,
           std::string to_stage, std::string name_space, std::int64_t readers, nb::handle ttl,
           nb::handle max_lifetime, nb::handle timeout, nb::handle fallback) {
  drain_releases();
  PutOptions options = put_options(readers, ttl, max_lifetime);
  options.deadline =
      Deadline::in(optional_seconds(timeout, "put", "timeout").value_or(self.node->config().put_wait));
  options.interruptible = on_main_thread();
  const ImportedTree tree = import_tree(payload, fallback);
  const Key name{.name_space = std::move(name_space),
                 .from_stage = std::move(from_stage),
                 .to_stage = std::move(to_stage),
                 .key = std::move(key)};
  const std::shared_ptr<Node> node = self.node;
  while (true) {
    Result<Ticket> ticket = [&] {
      const Unlocked unlocked;
      return node->put(name, tree.payload, options);
    }();
    if (ticket.ok()) return std::move(*ticket);
    if (ticket.error().kind() != ErrorKind::interrupted) raise(ticket.error());
    run_signal_handlers();
  }
}

PublicationObject put_in_place(NodeObject& self, std::string key, nb::handle payload, nb::handle memory,
                               std::string from_stage, std::string to_stage, std::string name_space,
                               std::int64_t readers, nb::handle ttl, nb::handle max_lifetime,
                               nb::handle fallback) {
  drain_releases();
  PutOptions options = put_options(readers, ttl, max_lifetime);
  const InPlaceMemory given = in_place_memory(memory);
  const ImportedTree tree =
      import_tree(payload, fallback, [&given](const Tensor& tensor) { given.check(tensor); });
  const Key name{.name_space = std::move(name_space),
                 .from_stage = std::move(from_stage),
                 .to_stage = std::move(to_stage),
                 .key = std::move(key)};
  const std::shared_ptr<Node> node = self.node;
  const Deadline withdrawn_by = certainly_withdrawn(options, node->config());
  Oneshot<EndReason> oneshot = Oneshot<EndReason>::make();
  // Shared because the option is a copyable function. Must not hold the node: the loop thread would destroy
  // it.
  options.released = [promise = std::make_shared<OneshotPromise<EndReason>>(std::move(oneshot.promise))](
                         EndReason reason) { promise->set(reason); };
  Result<Ticket> ticket = [&] {
    const Unlocked unlocked;
    return given.publish(*node, name, tree.payload, std::move(options));
  }();
  if (!ticket.ok()) raise(ticket.error());
  return {.ticket = nb::cast(std::move(*ticket)),
          .released = nb::cast(ReleasedObject(std::move(oneshot.future), node, withdrawn_by))};
}

}  // namespace stagewire::python
