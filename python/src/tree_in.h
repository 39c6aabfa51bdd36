// A tree of Python objects as a payload of the core. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>
#include <vector>

#include <stagewire/payload/payload.h>

namespace stagewire::python {

/// A payload over the caller's tensors, and what keeps their memory: to be kept until the core has copied
/// them.
struct ImportedTree {
  Payload payload;
  std::vector<nanobind::object> owners;
};

/// `fallback` (a callable or None) turns objects of unknown type into known ones. Throws
/// stagewire.InvalidArgument, naming the place in the tree and what is wrong there.
ImportedTree import_tree(nanobind::handle object, nanobind::handle fallback);

}  // namespace stagewire::python
