// See call.h.
#include "call.h"

#include <cmath>

#include "errors.h"
#include "got_object.h"
#include "process.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// How long a signal that arrived just before the thread went to sleep can stay unseen.
constexpr std::chrono::milliseconds kSlice{100};

}  // namespace

std::chrono::nanoseconds seconds_from(nb::handle seconds, const char* operation, const char* name) {
  const double number = PyBool_Check(seconds.ptr()) ? std::nan("") : PyFloat_AsDouble(seconds.ptr());
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  const bool is_number = PyFloat_Check(seconds.ptr()) != 0 || PyLong_Check(seconds.ptr()) != 0;
  if (!is_number || std::isnan(number)) {
    raise_invalid(operation, std::string(name) + " is " + std::string(nb::repr(seconds).c_str()) +
                                 "; expected a number of seconds");
  }
  constexpr double kLongest = std::chrono::duration<double>(Deadline::kLongest).count();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(std::max(number, -1.0), kLongest)));
}

std::optional<std::chrono::nanoseconds> optional_seconds(nb::handle seconds, const char* operation,
                                                         const char* name) {
  if (seconds.is_none()) return std::nullopt;
  return seconds_from(seconds, operation, name);
}

nb::object hand_over(Result<Got> got, const Handover& handover) {
  if (!got.ok()) raise(got.error());
  nb::object value = export_tree(got->payload, handover.framework);
  if (!handover.details) return value;
  return nb::cast(GotObject{.value = std::move(value),
                            .generation = got->generation,
                            .size = got->size,
                            .transport = std::move(got->transport),
                            .view = got->view,
                            .placement_note = std::move(got->placement_note)});
}

bool wait_in_slices(const WaitOnce& wait, Deadline until) {
  const bool main = on_main_thread();
  while (true) {
    Status waited;
    {
      const Unlocked unlocked;
      waited = main ? wait(Deadline::in(kSlice).earlier(until), true) : wait(until, false);
    }
    if (waited.ok()) return true;
    const ErrorKind kind = waited.error().kind();
    if (kind != ErrorKind::interrupted && kind != ErrorKind::deadline_exceeded) raise(waited.error());
    if (main) run_signal_handlers();
    if (until.passed()) return false;
  }
}

bool wait_interruptibly(const GetHandle& handle, Deadline until) {
  if (handle.done()) return true;
  return wait_in_slices([&handle](Deadline by, bool interruptible) { return handle.wait(by, interruptible); },
                        until) ||
         handle.done();
}

void abandon(GetHandle& handle, const Node& node) {
  const Unlocked unlocked;
  handle.cancel();
  // The node ends it within the abort grace; the rest guards against a bug.
  static_cast<void>(handle.wait(Deadline::in(node.config().abort_grace + std::chrono::seconds(5))).ok());
}

}  // namespace stagewire::python
