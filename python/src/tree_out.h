// A received payload as Python objects. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>

#include <stagewire/payload/payload.h>

namespace stagewire::python {

/// What received tensors become.
enum class Framework { numpy, torch };
/// "numpy" or "torch"; throws InvalidArgument for others, and for torch while nobody has imported it.
Framework framework_from(nanobind::handle name, const char* operation);

/// The payload's tree. A tensor that occurs twice is one object; one that was cut over several destinations
/// is None.
nanobind::object export_tree(const Payload& payload, Framework framework);

}  // namespace stagewire::python
