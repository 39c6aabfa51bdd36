// The memory that a payload is published from without a copy, as the caller of put_in_place names it. With
// the interpreter lock held, except where noted.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <vector>

#include <stagewire/node/node.h>

namespace stagewire::python {

/// Buffers of the publish pool or regions, never both.
struct InPlaceMemory {
  /// The Region objects. First, so that they go last: a region must not go with the interpreter lock held,
  /// and its object gives the lock up.
  std::vector<nanobind::object> region_objects;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::shared_ptr<Region>> regions;

  /// Throws a text (std::invalid_argument) that says why the tensor cannot be published where it is: it is
  /// not contiguous, or lies outside.
  void check(const Tensor& tensor) const;
  /// Publishes from this memory. Without the lock.
  Result<Ticket> publish(Node& node, const Key& key, const Payload& payload, PutOptions options) const;
};

/// The memory of `memory`: a Buffer or a Region, or a sequence of either. Throws stagewire.InvalidArgument,
/// stagewire.Forked.
InPlaceMemory in_place_memory(nanobind::handle memory);

}  // namespace stagewire::python
