// See host_memory.h.
#include "host_memory.h"

#include <stdexcept>
#include <string>

#include "errors.h"
#include "frameworks.h"
#include "tensors_in.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

[[noreturn]] void refuse_layout() {
  throw std::invalid_argument(
      "not contiguous: give the whole array that it is a part of, and publish parts of that");
}

// Bytes are bytes here: formats that cannot be sent as a tensor (structures, text) are taken, too.
HostMemory memory_of_buffer(nb::handle object) {
  nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  const Py_buffer* buffer = PyMemoryView_GET_BUFFER(view.ptr());
  if (PyBuffer_IsContiguous(buffer, 'C') == 0) refuse_layout();
  HostMemory out{.data = buffer->buf, .size = static_cast<std::uint64_t>(buffer->len), .owners = {}};
  out.owners.push_back(nb::borrow(object));
  out.owners.push_back(std::move(view));
  return out;
}

// Of any type, those that neither the buffer protocol nor a tensor knows included.
HostMemory memory_of_array(nb::handle object) {
  if (nb::cast<bool>(object.attr("dtype").attr("hasobject"))) {
    throw std::invalid_argument("an array of Python objects, which have no fixed bytes");
  }
  if (!nb::cast<bool>(object.attr("flags").attr("c_contiguous"))) refuse_layout();
  const nb::object address = object.attr("__array_interface__")["data"][0];
  HostMemory out{.data = PyLong_AsVoidPtr(address.ptr()),
                 .size = nb::cast<std::uint64_t>(object.attr("nbytes")),
                 .owners = {}};
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  out.owners.push_back(nb::borrow(object));
  return out;
}

HostMemory memory_of_tensor(nb::handle object) {
  ImportedTensor imported;
  if (!import_tensor(object, imported)) {
    throw std::invalid_argument("of type " + std::string(nb::type_name(object.type()).c_str()) +
                                "; expected an array, a tensor or anything with the buffer protocol");
  }
  if (!imported.tensor.contiguous()) refuse_layout();
  HostMemory out{.data = imported.tensor.data, .size = imported.tensor.bytes(), .owners = {}};
  const Torch* const found = torch();
  if (found != nullptr && PyObject_TypeCheck(object.ptr(), found->tensor) != 0) {
    if (!imported.owner.is(object)) {
      throw std::invalid_argument(
          "a torch tensor whose conjugation or negation is still to be done; give tensor.resolve_conj() or "
          "tensor.resolve_neg()");
    }
    // A tensor can be given other memory (tensor.data = …, module.to(…)); this second one keeps the old.
    out.owners.push_back(object.attr("detach")());
  }
  out.owners.push_back(nb::borrow(object));
  out.owners.push_back(std::move(imported.owner));
  return out;
}

}  // namespace

HostMemory host_memory(nb::handle object, const char* operation) {
  try {
    if (PyObject_TypeCheck(object.ptr(), numpy().generic) != 0) {
      throw std::invalid_argument("a NumPy scalar, which has no memory to lend; give an array");
    }
    if (PyObject_TypeCheck(object.ptr(), numpy().ndarray) != 0) return memory_of_array(object);
    if (PyObject_CheckBuffer(object.ptr()) != 0) return memory_of_buffer(object);
    return memory_of_tensor(object);
  } catch (const DeviceMemory& error) {
    Error refused(ErrorKind::not_viable, std::string("the memory is ") + error.what());
    raise(refused.with_operation(operation));
  } catch (const std::invalid_argument& error) {
    raise_invalid(operation, std::string("the memory is ") + error.what());
  }
}

}  // namespace stagewire::python
