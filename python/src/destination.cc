// See destination.h.
#include "destination.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "errors.h"
#include "releases.h"
#include "tensors_in.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

void add_destination(GetOptions& options, std::vector<nb::object>& held, nb::handle object,
                     const std::string& name) {
  ImportedTensor imported;
  try {
    if (!import_tensor(object, imported)) {
      throw std::invalid_argument("of type " + std::string(nb::type_name(object.type()).c_str()) +
                                  "; expected a writable array, tensor or buffer");
    }
    if (imported.tensor.read_only) throw std::invalid_argument("read-only");
    if (!imported.tensor.contiguous()) throw std::invalid_argument("not contiguous");
  } catch (const std::invalid_argument& error) {
    raise_invalid("get", name + " is " + error.what());
  }
  options.into.push_back({.data = static_cast<std::byte*>(const_cast<void*>(imported.tensor.data)),
                          .size = imported.tensor.bytes()});
  held.push_back(nb::borrow(object));
  held.push_back(std::move(imported.owner));
}

}  // namespace

void set_destination(GetOptions& options, nb::handle into) {
  options.placement = Placement::into;
  std::vector<nb::object> held;
  if (PyList_Check(into.ptr()) != 0 || PyTuple_Check(into.ptr()) != 0) {
    std::size_t index = 0;
    for (nb::handle item : nb::borrow<nb::sequence>(into)) {
      add_destination(options, held, item, "into[" + std::to_string(index++) + "]");
    }
    if (options.into.empty()) raise_invalid("get", "into is empty; give at least one array");
  } else {
    add_destination(options, held, into, "into");
  }
  options.into_hold = hold_objects(std::move(held));
}

}  // namespace stagewire::python
