// See region_object.h.
#include "region_object.h"

#include <nanobind/stl/string.h>
#include <utility>

#include "call.h"
#include "errors.h"
#include "host_memory.h"
#include "process.h"
#include "releases.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

constexpr const char* kRegister = "register region";
constexpr const char* kClose = "close region";

void close(const RegionObject& object, nb::handle timeout) {
  const Deadline until = Deadline::in(
      optional_seconds(timeout, kClose, "timeout").value_or(object.abort_grace + std::chrono::seconds(1)));
  Status closed;
  const bool back = wait_in_slices(
      [&](Deadline by, bool) {
        closed = object.region->close(by);
        return closed;
      },
      until);
  drain_releases();  // what the region kept
  if (!back) raise(closed.error());
}

}  // namespace

RegionObject::~RegionObject() {
  if (!region) return;  // moved from
  const Unlocked unlocked;
  region.reset();
}

void RegionObject::check_alive(const char* operation) const {
  if (const Status alive = made_in.check(); !alive.ok()) {
    Error error = alive.error();
    raise(error.with_operation(operation));
  }
}

RegionObject register_region(const std::shared_ptr<Node>& node, nb::handle object, std::string name) {
  HostMemory memory = host_memory(object, kRegister);
  nb::module_::import_("stagewire._lifecycle").attr("start_reaper")();
  RegionOptions options;
  options.name = std::move(name);
  options.hold = hold_objects(std::move(memory.owners));
  Result<std::shared_ptr<Region>> region = [&] {
    const Unlocked unlocked;
    return node->register_region(memory.data, memory.size, std::move(options));
  }();
  if (!region.ok()) {
    drain_releases();  // what would have been kept
    raise(region.error());
  }
  return {std::move(*region), node->config().abort_grace};
}

void bind_region(nb::module_& m) {
  nb::class_<RegionObject>(m, "Region", nb::is_final(),
                           "Memory of the caller's own, made by Node.register() and published by "
                           "Node.put_in_place(). Dropping the last reference closes it.")
      .def_prop_ro(
          "nbytes", [](const RegionObject& object) { return object.region->size(); }, "Its size in bytes.")
      .def_prop_ro(
          "name", [](const RegionObject& object) { return object.region->name(); },
          "What it is called in errors, logs and Node.explain().")
      .def_prop_ro(
          "address",
          [](const RegionObject& object) { return reinterpret_cast<std::uintptr_t>(object.region->data()); },
          "Where it lies in this process.")
      .def_prop_ro(
          "closed",
          [](const RegionObject& object) {
            object.check_alive("region");
            return object.region->closed();
          },
          "Whether close() was begun or the node has ended: nothing more can be published from it.", Guard())
      .def("close", &close, nb::arg("timeout").none() = nb::none(),
           "Takes the memory back by force: withdraws what lies in it, and returns when no peer can read it "
           "any more. DeadlineExceeded after `timeout` seconds (the node's abort_grace and a second): the "
           "memory must not be touched yet, and close() may be called again to wait longer.",
           Guard())
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); }, Guard())
      .def(
          "__exit__",
          [](const RegionObject& object, const nb::args&) {
            // A forked child that leaves the block has nothing to close, and may be on its way out.
            if (!object.made_in.forked()) close(object, nb::none());
          },
          Guard())
      .def("__repr__", [](const RegionObject& object) {
        return "<stagewire.Region '" + object.region->name() + "' of " +
               std::to_string(object.region->size()) + " bytes>";
      });
}

}  // namespace stagewire::python
