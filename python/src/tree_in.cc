// See tree_in.h.
#include "tree_in.h"

#include <stdexcept>
#include <string>
#include <unordered_map>

#include "errors.h"
#include "frameworks.h"
#include "payload/limits.h"
#include "tensors_in.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

class TreeReader {
 public:
  TreeReader(nb::handle fallback, const TensorCheck& check) : fallback_(fallback), check_(check) {}

  ImportedTree read(nb::handle object) {
    try {
      out_.payload.root() = value(object);
    } catch (const std::invalid_argument& error) {
      raise_invalid("put", place() + " is " + error.what());
    }
    return std::move(out_);
  }

 private:
  /// Where the walk is: the containers it is in, with the index or key it went through.
  struct Step {
    PyObject* container;
    nb::object key;         // for dicts
    std::size_t index = 0;  // for lists and tuples
  };

  [[noreturn]] static void refuse(const std::string& why) { throw std::invalid_argument(why); }

  Value value(nb::handle object) {
    PyObject* const o = object.ptr();
    if (o == Py_None) return {};
    PyTypeObject* const type = Py_TYPE(o);
    if (type == numpy().ndarray) return tensor(object);
    if (PyBool_Check(o)) return Value(o == Py_True);
    if (PyUnicode_CheckExact(o)) return Value(text(o));
    if (PyLong_CheckExact(o)) return integer(o);
    if (PyFloat_CheckExact(o)) return Value(PyFloat_AS_DOUBLE(o));
    if (PyDict_Check(o)) return dict(object);
    if (PyList_Check(o)) return list(object);
    if (PyTuple_Check(o)) return tuple(object);
    if (PyBytes_Check(o)) {
      return Value(Bytes{std::string(PyBytes_AS_STRING(o), static_cast<std::size_t>(PyBytes_GET_SIZE(o)))});
    }
    if (PyUnicode_Check(o)) return Value(text(o));
    // NumPy's scalars keep their type as tensors without dimensions, those that derive from int or float too.
    if (PyType_IsSubtype(type, numpy().generic) != 0) return tensor(object);
    if (PyLong_Check(o)) return integer(o);
    if (PyFloat_Check(o)) return Value(PyFloat_AsDouble(o));
    return tensor(object);
  }

  Value tensor(nb::handle object) {
    if (const auto known = tensors_.find(object.ptr()); known != tensors_.end())
      return Value(TensorRef{known->second});
    ImportedTensor imported;
    if (!import_tensor(object, imported)) return unknown(object);
    if (check_) check_(imported.tensor);
    const TensorRef index = out_.payload.add(std::move(imported.tensor));
    // The object too, not only its memory: its address stands for it in the map.
    out_.owners.push_back(nb::borrow(object));
    out_.owners.push_back(std::move(imported.owner));
    tensors_.emplace(object.ptr(), index.index);
    return Value(index);
  }

  Value unknown(nb::handle object) {
    if (fallback_.is_none() || in_fallback_) {
      refuse("of type " + std::string(nb::type_name(object.type()).c_str()) +
             "; expected None, bool, int, float, str, bytes, dict, list, tuple or a tensor (NumPy, torch, "
             "DLPack or a "
             "buffer)");
    }
    in_fallback_ = true;
    nb::object replacement = fallback_(object);
    in_fallback_ = PyDict_Check(replacement.ptr()) == 0 && PyList_Check(replacement.ptr()) == 0 &&
                   PyTuple_Check(replacement.ptr()) == 0;
    Value made = value(replacement);
    in_fallback_ = false;
    out_.owners.push_back(std::move(replacement));
    return made;
  }

  void enter(nb::handle container) {
    for (const Step& step : path_) {
      if (step.container == container.ptr()) refuse("a container that contains itself");
    }
    if (path_.size() >= kMaxPayloadDepth) {
      refuse("nested more than " + std::to_string(kMaxPayloadDepth) + " containers deep");
    }
    path_.push_back({.container = container.ptr(), .key = {}});
  }

  // Each item is held while it is read: reading can run the caller's code, which may change the container.
  Value list(nb::handle object) {
    enter(object);
    List out;
    out.items.reserve(static_cast<std::size_t>(PyList_GET_SIZE(object.ptr())));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object.ptr()); ++i) {
      const nb::object item = nb::borrow(PyList_GET_ITEM(object.ptr(), i));
      path_.back().index = static_cast<std::size_t>(i);
      out.items.push_back(value(item));
    }
    path_.pop_back();
    return Value(std::move(out));
  }

  Value tuple(nb::handle object) {
    enter(object);
    Tuple out;
    const Py_ssize_t size = PyTuple_GET_SIZE(object.ptr());
    out.items.reserve(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      path_.back().index = static_cast<std::size_t>(i);
      out.items.push_back(value(PyTuple_GET_ITEM(object.ptr(), i)));
    }
    path_.pop_back();
    return Value(std::move(out));
  }

  Value dict(nb::handle object) {
    enter(object);
    Dict out;
    out.items.reserve(static_cast<std::size_t>(PyDict_Size(object.ptr())));
    const auto add = [this, &out](nb::object key, const nb::object& item) {
      path_.back().key = std::move(key);
      DictKey made = dict_key(path_.back().key.ptr());
      out.items.emplace_back(std::move(made), value(item));
    };
    if (PyDict_CheckExact(object.ptr())) {
      Py_ssize_t position = 0;
      PyObject* key = nullptr;
      PyObject* item = nullptr;
      const Py_ssize_t size = PyDict_Size(object.ptr());
      while (PyDict_Next(object.ptr(), &position, &key, &item) != 0) {
        add(nb::borrow(key), nb::borrow(item));
        if (PyDict_Size(object.ptr()) != size) refuse("a dict that changed while it was read");
      }
    } else {
      // A subclass may order its items by itself.
      const nb::object items = nb::steal(PyMapping_Items(object.ptr()));
      if (!items.is_valid()) throw nb::python_error();
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
        const nb::object pair = nb::borrow(PyList_GET_ITEM(items.ptr(), i));
        add(nb::object(pair[0]), nb::object(pair[1]));
      }
    }
    path_.pop_back();
    return Value(std::move(out));
  }

  static DictKey dict_key(PyObject* key) {
    if (PyUnicode_Check(key)) return text(key);
    if (PyBytes_Check(key))
      return Bytes{std::string(PyBytes_AS_STRING(key), static_cast<std::size_t>(PyBytes_GET_SIZE(key)))};
    if (PyLong_Check(key) && !PyBool_Check(key)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(key, &overflow);
      if (overflow == 0) return std::int64_t{number};
      refuse("under an int key outside the 64-bit range");
    }
    refuse("under a key of type " + std::string(Py_TYPE(key)->tp_name) + "; expected str, int or bytes");
  }

  static Value integer(PyObject* number) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow == 0) return Value(std::int64_t{value});
    if (overflow > 0) {
      const unsigned long long large = PyLong_AsUnsignedLongLong(number);
      if (PyErr_Occurred() == nullptr) return Value(std::uint64_t{large});
      PyErr_Clear();
    }
    refuse("an int outside the range of int64 and uint64");
  }

  static std::string text(PyObject* object) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(object, &size);
    if (utf8 == nullptr) {
      PyErr_Clear();
      refuse("text that is not valid Unicode (a lone surrogate); send it as bytes");
    }
    return {utf8, static_cast<std::size_t>(size)};
  }

  std::string place() const {
    std::string place = "payload";
    for (const Step& step : path_) {
      if (step.key.is_valid()) {
        place += "[" + std::string(nb::repr(step.key).c_str()) + "]";
      } else {
        place += "[" + std::to_string(step.index) + "]";
      }
      if (place.size() > 200) return place.substr(0, 200) + "…";
    }
    return place;
  }

  nb::handle fallback_;
  const TensorCheck& check_;
  bool in_fallback_ = false;  // what the fallback returned is not given to it again
  std::vector<Step> path_;
  std::unordered_map<PyObject*, std::uint32_t> tensors_;
  ImportedTree out_;
};

}  // namespace

ImportedTree import_tree(nb::handle object, nb::handle fallback, const TensorCheck& check) {
  return TreeReader(fallback, check).read(object);
}

}  // namespace stagewire::python
