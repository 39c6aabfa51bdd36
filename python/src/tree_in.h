// A tree of Python objects as a payload of the core. With the interpreter lock held.
#pragma once

#include <functional>
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

/// Looks at each tensor; throws a text (std::invalid_argument) that says what is wrong with it.
using TensorCheck = std::function<void(const Tensor&)>;

/// `fallback` (a callable or None) turns objects of unknown type into known ones; `check`, if given,
/// decides which tensors are taken. Throws stagewire.InvalidArgument, naming the place in the tree and what
/// is wrong there.
ImportedTree import_tree(nanobind::handle object, nanobind::handle fallback, const TensorCheck& check = {});

}  // namespace stagewire::python
