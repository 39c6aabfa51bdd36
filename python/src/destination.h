// The caller's own memory as the destination of a get. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>

#include <stagewire/node/options.h>

namespace stagewire::python {

/// Sets `options` up for `into`: one writable, contiguous array, or a list or tuple of them. The objects are
/// held until nothing can write to them any more. Throws InvalidArgument.
void set_destination(GetOptions& options, nanobind::handle into);

}  // namespace stagewire::python
