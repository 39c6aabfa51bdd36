// Region: memory of the caller's own that payloads are published from in place, as a Python object. With the
// interpreter lock held; any thread.
#pragma once

#include <chrono>
#include <memory>
#include <nanobind/nanobind.h>
#include <string>

#include <stagewire/node/node.h>

#include "base/fd.h"

namespace stagewire::python {

/// Does not keep the node. Dropping it closes the region, and waits without the interpreter lock, for the
/// node's abort grace at most, until no peer can read the memory any more. The dropping thread waits itself
/// instead of handing the handle to the reaper, so that one peer that does not let go can't keep the reaper
/// from dropping what others have released. In a forked child it does nothing.
struct RegionObject {
  RegionObject(std::shared_ptr<Region> made, std::chrono::nanoseconds grace)
      : region(std::move(made)), abort_grace(grace) {}
  RegionObject(RegionObject&&) = default;
  RegionObject& operator=(RegionObject&&) = delete;
  ~RegionObject();

  /// Throws stagewire.Forked in a forked child, where the region's own locks may be held for ever.
  void check_alive(const char* operation) const;

  std::shared_ptr<Region> region;
  std::chrono::nanoseconds abort_grace;
  ForkGuard made_in;
};

/// Registers the memory of `object`, which is kept until nothing of stagewire touches it any more. Throws
/// invalid_argument, not_viable (device memory), busy, closed, forked.
RegionObject register_region(const std::shared_ptr<Node>& node, nanobind::handle object, std::string name);

void bind_region(nanobind::module_& m);

}  // namespace stagewire::python
