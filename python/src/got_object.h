// What get(…, details=True) returns. A plain value; with the interpreter lock held.
#pragma once

#include <cstdint>
#include <nanobind/nanobind.h>
#include <string>

namespace stagewire::python {

struct GotObject {
  nanobind::object value;
  std::uint64_t generation = 0;
  std::uint64_t size = 0;
  std::string transport;
  bool view = false;
  std::string placement_note;
};

void bind_got(nanobind::module_& m);

}  // namespace stagewire::python
