// The C++ Connector for stagewire.connector. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>

namespace stagewire::python {

void bind_connector(nanobind::module_& m);

}  // namespace stagewire::python
