// See released_object.h.
#include "released_object.h"

#include <nanobind/stl/string.h>

#include "call.h"
#include "errors.h"
#include "process.h"
#include "releases.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// How long the end of the process may have to wait for this one: it closes the node, but that completes
// nothing while a reader holds the memory.
constexpr std::chrono::seconds kStep{1};

Deadline until(const ReleasedObject& released, nb::handle timeout, const char* operation) {
  if (timeout.is_none()) return released.withdrawn_by;
  return Deadline::in(seconds_from(timeout, operation, "timeout"));
}

bool wait(ReleasedObject& released, Deadline until) {
  drain_releases();
  while (!wait_interruptibly(released.future, Deadline::in(kStep).earlier(until))) {
    if (until.passed() || process_ending()) return false;
  }
  return true;
}

[[noreturn]] void raise_still_used(const ReleasedObject& released) {
  std::string text = "the memory is still published, or a reader holds it; do not write to it, and ask again";
  if (released.node->closed()) {
    text =
        "the node was closed while a reader held the memory, and does not learn any more when that ends; do "
        "not write to it, and drop it";
  }
  Error error(ErrorKind::deadline_exceeded, std::move(text));
  raise(error.with_operation("released"));
}

std::string result(ReleasedObject& released, Deadline until) {
  if (!wait(released, until)) raise_still_used(released);
  if (!released.reason) released.reason = released.future.try_take();
  if (!released.reason) {
    Error error(ErrorKind::internal, "the publication was dropped without a reason");
    raise(error.with_operation("released"));
  }
  return std::string(to_string(*released.reason));
}

}  // namespace

ReleasedObject::~ReleasedObject() {
  if (!node) return;  // moved from
  // Its last reference closes the node, which may wait for reads to settle.
  const Unlocked unlocked;
  node.reset();
}

void bind_released(nb::module_& m) {
  nb::class_<ReleasedObject>(
      m, "Released",
      "Completes when nothing of stagewire touches the memory of a publication in place any more. Can be "
      "awaited.")
      .def(
          "done",
          [](const ReleasedObject& released) { return released.reason || released.future.finished(); },
          "Whether the memory may be written again.", Guard())
      .def(
          "wait",
          [](ReleasedObject& released, nb::handle timeout) {
            return wait(released, until(released, timeout, "wait"));
          },
          nb::arg("timeout").none() = nb::none(),
          "Waits until the memory may be written again, at most `timeout` seconds; True if it may.", Guard())
      .def(
          "result",
          [](ReleasedObject& released, nb::handle timeout) {
            return result(released, until(released, timeout, "result"));
          },
          nb::arg("timeout").none() = nb::none(),
          "Why the publication ended: \"consumed\", \"cancelled\", \"replaced\", \"expired\" or \"closed\". "
          "DeadlineExceeded if the memory is still in use after `timeout` seconds.",
          Guard())
      .def(
          "fileno", [](const ReleasedObject& released) { return value_or_raise(released.future.event_fd()); },
          "A descriptor for select, poll and event loops, readable once it is done. Do not read or close it.",
          Guard())
      .def(
          "__await__",
          [](nb::handle self) {
            const auto left =
                std::chrono::duration<double>(nb::inst_ptr<ReleasedObject>(self)->withdrawn_by.left());
            return nb::module_::import_("stagewire._aio")
                .attr("release")(self, left.count())
                .attr("__await__")();
          },
          Guard());
}

}  // namespace stagewire::python
