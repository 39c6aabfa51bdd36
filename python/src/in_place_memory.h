// The memory that a payload is published from without a copy, as the caller of put_in_place names it. With
// the interpreter lock held.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <vector>

#include <stagewire/memory/pool.h>
#include <stagewire/payload/payload.h>

namespace stagewire::python {

/// Keeps the memory by itself: no Python object has to live for it.
struct InPlaceMemory {
  std::vector<std::shared_ptr<Buffer>> buffers;

  /// Throws a text (std::invalid_argument) that says why the tensor cannot be published where it is: it is
  /// not contiguous, or lies outside.
  void check(const Tensor& tensor) const;
};

/// The memory of `memory`: a Buffer or a sequence of them. Throws stagewire.InvalidArgument.
InPlaceMemory in_place_memory(nanobind::handle memory);

}  // namespace stagewire::python
