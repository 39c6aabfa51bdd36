// See memory_object.h.
#include "memory_object.h"

#include <vector>

#include "dlpack.h"
#include "frameworks.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// What an empty tensor's address is: consumers want one that is not null.
std::byte g_no_bytes{};

std::byte* address_of(const Tensor& tensor) {
  // Tensors are described as const for the senders' sake; whether this memory may be written is `read_only`.
  return tensor.data == nullptr ? &g_no_bytes : static_cast<std::byte*>(const_cast<void*>(tensor.data));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* memory = nb::inst_ptr<Memory>(self);
  return PyBuffer_FillInfo(view, self, memory->data, static_cast<Py_ssize_t>(memory->size),
                           memory->writable ? 0 : 1, flags);
}

PyType_Slot g_memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

nb::object shape_tuple(const std::vector<std::int64_t>& shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* dim = PyLong_FromLongLong(shape[i]);
    if (dim == nullptr) throw nb::python_error();
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), dim);
  }
  return tuple;
}

// What torch is asked to import: element types that every torch's DLPack knows. The rest arrive as integers
// of the same width and are then viewed as what they are.
struct Imported {
  dlpack::DataType type;
  bool exact;
};

Imported dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
  switch (dtype) {
    case DType::u8:
      return {{dlpack::kUInt, bits, 1}, true};
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return {{dlpack::kInt, bits, 1}, true};
    case DType::f16:
    case DType::f32:
    case DType::f64:
      return {{dlpack::kFloat, bits, 1}, true};
    case DType::bf16:
      return {{dlpack::kBfloat, bits, 1}, true};
    case DType::c64:
    case DType::c128:
      return {{dlpack::kComplex, bits, 1}, true};
    case DType::boolean:
    case DType::f8_e4m3fn:
    case DType::f8_e5m2:
      return {{dlpack::kUInt, bits, 1}, false};
    case DType::u16:
    case DType::u32:
    case DType::u64:
      break;
  }
  return {{dlpack::kInt, bits, 1}, false};
}

struct Lent {
  dlpack::Managed managed{};
  std::vector<std::int64_t> shape;
  std::shared_ptr<const void> hold;
};

// torch calls it on whatever thread drops the last tensor; it touches nothing of Python.
void drop_lent(dlpack::Managed* managed) {
  delete static_cast<Lent*>(managed->context);
}

void drop_unused_capsule(PyObject* capsule) {
  // A capsule that was imported has been renamed, and the importer owns the tensor.
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

}  // namespace

nb::object numpy_over(const Tensor& tensor) {
  const NumPy& np = numpy();
  const nb::object memory = nb::cast(Memory{.data = address_of(tensor),
                                            .size = static_cast<std::size_t>(tensor.bytes()),
                                            .writable = !tensor.read_only,
                                            .hold = tensor.hold});
  const nb::object shape = shape_tuple(tensor.shape);
  PyObject* const arguments[] = {shape.ptr(), np.dtypes[static_cast<std::size_t>(tensor.dtype)],
                                 memory.ptr()};
  nb::object array =
      nb::steal(PyObject_Vectorcall(reinterpret_cast<PyObject*>(np.ndarray), arguments, 3, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  return array;
}

nb::object torch_over(const Tensor& tensor) {
  const Torch* const found = torch();
  PyObject* const dtype = found == nullptr ? nullptr : found->dtypes[static_cast<std::size_t>(tensor.dtype)];
  if (dtype == nullptr) return numpy_over(tensor);
  const Imported imported = dlpack_type(tensor.dtype);
  auto lent = std::make_unique<Lent>();
  lent->shape = tensor.shape;
  lent->hold = tensor.hold;
  lent->managed.tensor = {.data = address_of(tensor),
                          .device = {dlpack::kCpu, 0},
                          .ndim = static_cast<std::int32_t>(lent->shape.size()),
                          .dtype = imported.type,
                          .shape = lent->shape.data(),
                          .strides = nullptr,
                          .byte_offset = 0};
  lent->managed.context = lent.get();
  lent->managed.deleter = &drop_lent;
  const nb::object capsule = nb::steal(PyCapsule_New(&lent->managed, "dltensor", &drop_unused_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  static_cast<void>(lent.release());  // the capsule's now
  nb::object made = nb::steal(PyObject_CallOneArg(found->from_dlpack, capsule.ptr()));
  if (!made.is_valid()) throw nb::python_error();
  if (imported.exact) return made;
  nb::object viewed = nb::steal(PyObject_CallMethodOneArg(made.ptr(), names().view, dtype));
  if (!viewed.is_valid()) throw nb::python_error();
  return viewed;
}

void bind_memory(nb::module_& m) {
  nb::class_<Memory>(m, "Memory", nb::type_slots(g_memory_slots), nb::is_final(),
                     "The bytes of a received tensor (buffer protocol).")
      .def_prop_ro("nbytes", [](const Memory& memory) { return memory.size; })
      .def_prop_ro("readonly", [](const Memory& memory) { return !memory.writable; });
}

}  // namespace stagewire::python
