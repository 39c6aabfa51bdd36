// Released: what tells the owner of memory that was published in place when it may be reused, as a Python
// object. The core's thread sets it without the interpreter lock; everything here runs with it.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <optional>

#include <stagewire/node/node.h>

#include "base/oneshot.h"

namespace stagewire::python {

/// Holds the node too: were it destroyed, the end of a lease that a reader still holds could not be known.
struct ReleasedObject {
  ReleasedObject(OneshotFuture<EndReason> when, std::shared_ptr<Node> owner, Deadline withdrawn)
      : future(std::move(when)), node(std::move(owner)), withdrawn_by(withdrawn) {}
  ReleasedObject(ReleasedObject&&) = default;
  ReleasedObject& operator=(ReleasedObject&&) = delete;
  ~ReleasedObject();

  OneshotFuture<EndReason> future;
  std::shared_ptr<Node> node;
  Deadline
      withdrawn_by;  ///< when its maximum lifetime is over for sure; how long waits without a timeout last
  std::optional<EndReason> reason;  ///< once it was taken
};

void bind_released(nanobind::module_& m);

}  // namespace stagewire::python
