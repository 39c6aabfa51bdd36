// The handle of a running get, as a Python object. With the interpreter lock held.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>

#include <stagewire/node/node.h>

#include "call.h"

namespace stagewire::python {

/// Holds the node too: its loop is what ends the get.
struct FutureObject {
  GetHandle handle;
  std::shared_ptr<Node> node;
  Handover handover;
  Deadline deadline;
  nanobind::object outcome;  ///< once it was taken: the result or the exception
  bool failed = false;
};

void bind_future(nanobind::module_& m);

/// The result; waits until `until` for it. Throws the get's error, or DeadlineExceeded while it goes on.
nanobind::object result_of(FutureObject& future, Deadline until);

/// Until when the get has ended for sure: its deadline and the time to make its destination safe.
Deadline certain_end(const FutureObject& future);

}  // namespace stagewire::python
