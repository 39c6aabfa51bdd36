// See tree_out.h.
#include "tree_out.h"

#include <string>
#include <vector>

#include "errors.h"
#include "frameworks.h"
#include "memory_object.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

nb::object checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object text_object(const std::string& text) {
  return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"));
}

nb::object bytes_object(const Bytes& bytes) {
  return checked(PyBytes_FromStringAndSize(bytes.data.data(), static_cast<Py_ssize_t>(bytes.data.size())));
}

class TreeWriter {
 public:
  TreeWriter(const Payload& payload, Framework framework)
      : payload_(payload), framework_(framework), tensors_(payload.tensors().size()) {}

  // Recursive: the codec bounds the depth.
  nb::object write(const Value& value) {
    return std::visit([&](const auto& v) { return object(v); }, value.variant());
  }

 private:
  static nb::object object(std::monostate) { return nb::none(); }
  static nb::object object(bool v) { return checked(PyBool_FromLong(v ? 1 : 0)); }
  static nb::object object(std::int64_t v) { return checked(PyLong_FromLongLong(v)); }
  static nb::object object(std::uint64_t v) { return checked(PyLong_FromUnsignedLongLong(v)); }
  static nb::object object(double v) { return checked(PyFloat_FromDouble(v)); }
  static nb::object object(const std::string& v) { return text_object(v); }
  static nb::object object(const Bytes& v) { return bytes_object(v); }
  nb::object object(const List& v) {
    nb::object made = checked(PyList_New(static_cast<Py_ssize_t>(v.items.size())));
    for (std::size_t i = 0; i < v.items.size(); ++i) {
      PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), write(v.items[i]).release().ptr());
    }
    return made;
  }
  nb::object object(const Tuple& v) {
    nb::object made = checked(PyTuple_New(static_cast<Py_ssize_t>(v.items.size())));
    for (std::size_t i = 0; i < v.items.size(); ++i) {
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), write(v.items[i]).release().ptr());
    }
    return made;
  }
  nb::object object(const Dict& v) {
    nb::object made = checked(PyDict_New());
    for (const auto& [key, item] : v.items) {
      const nb::object name = std::visit([](const auto& k) { return object(k); }, key);
      if (PyDict_SetItem(made.ptr(), name.ptr(), write(item).ptr()) != 0) throw nb::python_error();
    }
    return made;
  }
  nb::object object(TensorRef ref) {
    nb::object& known = tensors_[ref.index];
    if (!known.is_valid()) known = tensor(payload_.tensors()[ref.index]);
    return known;
  }
  nb::object tensor(const Tensor& tensor) const {
    if (tensor.data == nullptr && tensor.bytes() != 0) return nb::none();
    return framework_ == Framework::torch ? torch_over(tensor) : numpy_over(tensor);
  }

  const Payload& payload_;
  Framework framework_;
  std::vector<nb::object> tensors_;
};

}  // namespace

Framework framework_from(nb::handle name, const char* operation) {
  if (PyUnicode_Check(name.ptr())) {
    if (PyUnicode_CompareWithASCIIString(name.ptr(), "numpy") == 0) return Framework::numpy;
    if (PyUnicode_CompareWithASCIIString(name.ptr(), "torch") == 0) {
      if (torch() != nullptr) return Framework::torch;
      raise_invalid(operation, "framework is 'torch', but torch is not imported; import it first");
    }
  }
  raise_invalid(operation,
                "framework is " + std::string(nb::repr(name).c_str()) + "; expected 'numpy' or 'torch'");
}

nb::object export_tree(const Payload& payload, Framework framework) {
  return TreeWriter(payload, framework).write(payload.root());
}

}  // namespace stagewire::python
