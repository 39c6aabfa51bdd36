// See tensors_in.h.
#include "tensors_in.h"

#include <stdexcept>
#include <string>
#include <string_view>

#include "dlpack.h"
#include "frameworks.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument(why);
}

nb::object attribute(nb::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

// What __array_struct__ hands out; fixed by NumPy's array interface, version 3.
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* descr;
};
constexpr int kArrayWriteable = 0x400;

void set_layout(Tensor& tensor, const Py_ssize_t* shape, const Py_ssize_t* strides, int dims) {
  tensor.shape.assign(shape, shape + dims);
  if (strides != nullptr) tensor.strides.assign(strides, strides + dims);
}

void import_numpy(nb::handle array, ImportedTensor& out) {
  out.tensor.dtype = dtype_of_numpy(attribute(array, names().dtype));
  const nb::object capsule = attribute(array, names().array_struct);
  const auto* view = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (view == nullptr) throw nb::python_error();
  if (view->two != 2) refuse("an array with an unknown array interface");
  set_layout(out.tensor, view->shape, view->strides, view->nd);
  out.tensor.data = view->data;
  out.tensor.read_only = (view->flags & kArrayWriteable) == 0;
  out.owner = capsule;  // which keeps the array, or the copy that was made of a scalar
}

// Subclasses whose elements are not all there is to them would lose something silently.
bool is_masked(nb::handle array) {
  return nb::hasattr(array, "mask") && nb::hasattr(array, "fill_value");
}

void import_torch(const Torch& torch, nb::handle tensor, ImportedTensor& out) {
  const nb::object dtype = attribute(tensor, names().dtype);
  const auto known = dtype_of_torch(torch, dtype.ptr());
  if (!known)
    refuse("a torch tensor of type " + std::string(nb::str(dtype).c_str()) + ", which cannot be sent");
  const nb::object device = attribute(attribute(tensor, names().device), names().type);
  if (PyUnicode_CompareWithASCIIString(device.ptr(), "cpu") != 0) {
    throw DeviceMemory("a torch tensor on '" + std::string(nb::str(device).c_str()) +
                       "': device memory is not supported in this version; use tensor.cpu()");
  }
  if (attribute(tensor, names().layout).ptr() != torch.strided) {
    refuse("a torch tensor that is not dense (layout " +
           std::string(nb::str(attribute(tensor, names().layout)).c_str()) + "); use tensor.to_dense()");
  }
  nb::object source = nb::borrow(tensor);
  const bool complex = *known == DType::c64 || *known == DType::c128;
  // A lazily conjugated or negated tensor's memory does not hold its values.
  const auto is = [&source](PyObject* question) {
    const nb::object answer = nb::steal(PyObject_CallMethodNoArgs(source.ptr(), question));
    if (!answer.is_valid()) throw nb::python_error();
    return answer.ptr() == Py_True;
  };
  if (complex && is(names().is_conj)) source = source.attr("resolve_conj")();
  if (is(names().is_neg)) source = source.attr("resolve_neg")();

  const nb::object shape = attribute(source, names().shape);
  const nb::object strides = nb::steal(PyObject_CallMethodNoArgs(source.ptr(), names().stride));
  const nb::object address = nb::steal(PyObject_CallMethodNoArgs(source.ptr(), names().data_ptr));
  if (!strides.is_valid() || !address.is_valid()) throw nb::python_error();
  const Py_ssize_t dims = PyTuple_GET_SIZE(shape.ptr());
  if (dims != PyTuple_GET_SIZE(strides.ptr())) refuse("a torch tensor whose shape and strides do not match");
  Tensor& t = out.tensor;
  t.dtype = *known;
  t.shape.resize(static_cast<std::size_t>(dims));
  t.strides.resize(static_cast<std::size_t>(dims));
  const auto width = static_cast<std::int64_t>(size_of(*known));
  for (Py_ssize_t i = 0; i < dims; ++i) {
    t.shape[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), i));
    t.strides[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides.ptr(), i)) * width;
  }
  t.data = PyLong_AsVoidPtr(address.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  t.read_only = false;
  out.owner = std::move(source);
}

// One element of a buffer's struct-module format, in native byte order.
DType dtype_of_format(const char* format, Py_ssize_t width) {
  std::string_view text = format == nullptr ? "B" : format;
  const char order = text.empty() ? '\0' : text.front();
  if (order == '@' || order == '=' || order == '<') text.remove_prefix(1);
  if ((order == '>' || order == '!') && width > 1) {
    refuse("a buffer whose elements are not in this machine's byte order (format '" + std::string(format) +
           "')");
  }
  const auto by_width = [width](DType one, DType two, DType four, DType eight) {
    return width == 1 ? one : width == 2 ? two : width == 4 ? four : eight;
  };
  if (text == "?" && width == 1) return DType::boolean;
  if (text == "c") return DType::u8;
  const bool integer = width == 1 || width == 2 || width == 4 || width == 8;
  if (text.size() == 1 && integer && std::string_view("bhilqn").find(text) != std::string_view::npos) {
    return by_width(DType::i8, DType::i16, DType::i32, DType::i64);
  }
  if (text.size() == 1 && integer && std::string_view("BHILQN").find(text) != std::string_view::npos) {
    return by_width(DType::u8, DType::u16, DType::u32, DType::u64);
  }
  if (text == "e" && width == 2) return DType::f16;
  if (text == "f" && width == 4) return DType::f32;
  if (text == "d" && width == 8) return DType::f64;
  if (text == "Zf" && width == 8) return DType::c64;
  if (text == "Zd" && width == 16) return DType::c128;
  refuse("a buffer with elements of format '" + std::string(text) +
         "'; expected a bool, an integer of 8 to 64 bits, or a float or complex number");
}

void import_buffer(nb::handle object, ImportedTensor& out) {
  nb::object memory = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!memory.is_valid()) throw nb::python_error();
  const Py_buffer* view = PyMemoryView_GET_BUFFER(memory.ptr());
  if (view->suboffsets != nullptr) refuse("a buffer of pointers (suboffsets)");
  out.tensor.dtype = dtype_of_format(view->format, view->itemsize);
  set_layout(out.tensor, view->shape, view->strides, view->ndim);
  out.tensor.data = view->buf;
  out.tensor.read_only = view->readonly != 0;
  out.owner = std::move(memory);
}

DType dtype_of_dlpack(const dlpack::DataType& type) {
  const auto by_bits = [&type](DType one, DType two, DType four, DType eight) {
    switch (type.bits) {
      case 8:
        return one;
      case 16:
        return two;
      case 32:
        return four;
      case 64:
        return eight;
      default:
        refuse("a DLPack tensor with integers of " + std::to_string(type.bits) + " bits");
    }
  };
  const bool single = type.lanes == 1;
  if (single && type.code == dlpack::kInt) return by_bits(DType::i8, DType::i16, DType::i32, DType::i64);
  if (single && type.code == dlpack::kUInt) return by_bits(DType::u8, DType::u16, DType::u32, DType::u64);
  if (single && type.code == dlpack::kFloat && type.bits == 16) return DType::f16;
  if (single && type.code == dlpack::kFloat && type.bits == 32) return DType::f32;
  if (single && type.code == dlpack::kFloat && type.bits == 64) return DType::f64;
  if (single && type.code == dlpack::kBfloat && type.bits == 16) return DType::bf16;
  if (single && type.code == dlpack::kComplex && type.bits == 64) return DType::c64;
  if (single && type.code == dlpack::kComplex && type.bits == 128) return DType::c128;
  if (single && type.code == dlpack::kBool && type.bits == 8) return DType::boolean;
  if (single && type.code == dlpack::kFloat8E4m3fn && type.bits == 8) return DType::f8_e4m3fn;
  if (single && type.code == dlpack::kFloat8E5m2 && type.bits == 8) return DType::f8_e5m2;
  refuse("a DLPack tensor with elements of code " + std::to_string(type.code) + ", " +
         std::to_string(type.bits) + " bits, " + std::to_string(type.lanes) + " lanes, which cannot be sent");
}

// Versioned where the producer knows that (it is how read-only memory is handed out), else the older kind.
nb::object dlpack_capsule(nb::handle object) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return object.attr("__dlpack__")();
}

void import_dlpack(nb::handle object, ImportedTensor& out) {
  const nb::object device = object.attr("__dlpack_device__")();
  const auto type = nb::cast<int>(nb::object(device[0]));
  if (type != dlpack::kCpu && type != dlpack::kCudaHost) {
    throw DeviceMemory("a tensor on DLPack device " + std::to_string(type) +
                       ": device memory is not supported in this version; copy it to host memory first");
  }
  nb::object capsule = dlpack_capsule(object);
  const dlpack::TensorView* view = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major != 1) refuse("a DLPack tensor of version " + std::to_string(managed->major));
    out.tensor.read_only = (managed->flags & dlpack::kReadOnly) != 0;
    view = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    view = &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
    out.tensor.read_only = false;
  } else {
    refuse("an object whose __dlpack__ returned no DLPack tensor");
  }
  if (view->ndim < 0 || (view->ndim > 0 && view->shape == nullptr)) refuse("a DLPack tensor without a shape");
  out.tensor.dtype = dtype_of_dlpack(view->dtype);
  out.tensor.shape.assign(view->shape, view->shape + view->ndim);
  if (view->strides != nullptr) {
    out.tensor.strides.assign(view->strides, view->strides + view->ndim);
    for (auto& stride : out.tensor.strides) stride *= static_cast<std::int64_t>(size_of(out.tensor.dtype));
  }
  out.tensor.data =
      view->data == nullptr ? nullptr : static_cast<const std::byte*>(view->data) + view->byte_offset;
  // Unused, the capsule gives the tensor back when it is dropped.
  out.owner = std::move(capsule);
}

bool has_attribute(nb::handle object, PyObject* name) {
  return PyObject_HasAttr(object.ptr(), name) != 0;
}

}  // namespace

bool import_tensor(nb::handle object, ImportedTensor& out) {
  const NumPy& np = numpy();
  PyTypeObject* const type = Py_TYPE(object.ptr());
  if (type == np.ndarray) {
    import_numpy(object, out);
    return true;
  }
  if (const Torch* found = torch();
      found != nullptr && PyObject_TypeCheck(object.ptr(), found->tensor) != 0) {
    import_torch(*found, object, out);
    return true;
  }
  if (PyType_IsSubtype(type, np.ndarray) != 0 || PyType_IsSubtype(type, np.generic) != 0) {
    if (is_masked(object)) refuse("a masked array; send the filled array and the mask");
    import_numpy(object, out);
    return true;
  }
  if (has_attribute(object, names().dlpack) && has_attribute(object, names().dlpack_device)) {
    import_dlpack(object, out);
    return true;
  }
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    import_buffer(object, out);
    return true;
  }
  return false;
}

}  // namespace stagewire::python
