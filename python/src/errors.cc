// See errors.h.
#include "errors.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace stagewire::python {

nb::object exception_of(const Error& error) {
  nb::object cause = nb::none();
  if (error.cause() != nullptr) cause = exception_of(*error.cause());
  return nb::module_::import_("stagewire.errors")
      .attr("make")(std::string(to_string(error.kind())), error.message(), error.operation(), error.key(),
                    error.peer(), error.transport(), cause);
}

void raise(const Error& error) {
  const nb::object exception = exception_of(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void raise_invalid(const char* operation, std::string message) {
  Error error(ErrorKind::invalid_argument, std::move(message));
  error.with_operation(operation);
  raise(error);
}

}  // namespace stagewire::python
