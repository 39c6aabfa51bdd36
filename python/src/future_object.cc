// See future_object.h.
#include "future_object.h"

#include "errors.h"
#include "process.h"
#include "releases.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

void take_outcome(FutureObject& future) {
  if (future.outcome.is_valid()) return;
  Result<Got> got = future.handle.take();
  if (got.ok()) {
    future.outcome = hand_over(std::move(got), future.handover);
  } else {
    future.failed = true;
    future.outcome = exception_of(got.error());
  }
}

Deadline until(const FutureObject& future, nb::handle timeout, const char* operation) {
  if (timeout.is_none()) return certain_end(future);
  return Deadline::in(seconds_from(timeout, operation, "timeout"));
}

}  // namespace

Deadline certain_end(const FutureObject& future) {
  return Deadline(future.deadline.at() + future.node->config().abort_grace + std::chrono::seconds(5));
}

nb::object result_of(FutureObject& future, Deadline until) {
  if (!future.outcome.is_valid()) {
    if (!wait_interruptibly(future.handle, until)) {
      Error error(ErrorKind::deadline_exceeded, "the get is still running; ask again or cancel it");
      raise(error.with_operation("result"));
    }
    take_outcome(future);
  }
  if (!future.failed) return future.outcome;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(future.outcome.ptr())), future.outcome.ptr());
  throw nb::python_error();
}

void bind_future(nb::module_& m) {
  nb::class_<FutureObject>(m, "Future", "A running get. Can be awaited.")
      .def(
          "done",
          [](const FutureObject& future) { return future.outcome.is_valid() || future.handle.done(); },
          "Whether the outcome is there.", Guard())
      .def(
          "wait",
          [](FutureObject& future, nb::handle timeout) {
            drain_releases();
            return future.outcome.is_valid() ||
                   wait_interruptibly(future.handle, until(future, timeout, "wait"));
          },
          nb::arg("timeout").none() = nb::none(),
          "Waits for the outcome, at most `timeout` seconds; True if it is there. The get's own deadline "
          "goes on.",
          Guard())
      .def(
          "result",
          [](FutureObject& future, nb::handle timeout) {
            drain_releases();
            return result_of(future, until(future, timeout, "result"));
          },
          nb::arg("timeout").none() = nb::none(),
          "The payload, or the get's error as an exception. DeadlineExceeded if it is not there within "
          "`timeout` "
          "seconds; the get goes on then.",
          Guard())
      .def(
          "fileno", [](const FutureObject& future) { return future.handle.fd(); },
          "A descriptor for select, poll and event loops, readable once the outcome is there. Do not read or "
          "close "
          "it.",
          Guard())
      .def(
          "cancel", [](FutureObject& future) { future.handle.cancel(); },
          "Gives up: the outcome will be Cancelled, unless it is there already.", Guard())
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("stagewire._aio").attr("outcome")(self).attr("__await__")();
          },
          Guard());
}

}  // namespace stagewire::python
