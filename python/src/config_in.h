// A node's configuration from Python values. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>

#include <stagewire/base/config.h>

namespace stagewire::python {

/// Defaults, overridden by the file (None or a path), the environment if `environment`, and the options of
/// `values`. Throws ConfigError.
NodeConfig config_from(const nanobind::dict& values, nanobind::handle file, bool environment);

}  // namespace stagewire::python
