// See frameworks.h. Which dtype is which is decided in stagewire._tensors; here are the tables made from it.
#include "frameworks.h"

#include <utility>
#include <vector>

#include "errors.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// Bounds the memory of odd dtype objects (with metadata, or unpickled): a program has a few.
constexpr std::size_t kMaxKnownDTypes = 64;

nb::object tables() {
  return nb::module_::import_("stagewire._tensors");
}

PyTypeObject* type_of(nb::object type) {
  return reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

std::array<PyObject*, kDTypeCount> dtype_table(const nb::object& made) {
  std::array<PyObject*, kDTypeCount> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    nb::object entry = made[i];
    table[i] = entry.is_none() ? nullptr : entry.release().ptr();
  }
  return table;
}

NumPy find_numpy() {
  const nb::object module = nb::module_::import_("numpy");
  return {.ndarray = type_of(module.attr("ndarray")),
          .generic = type_of(module.attr("generic")),
          .dtypes = dtype_table(tables().attr("numpy_dtypes")())};
}

PyObject* interned(const char* text) {
  return PyUnicode_InternFromString(text);
}

}  // namespace

const NumPy& numpy() {
  static const NumPy found = find_numpy();
  return found;
}

DType dtype_of_numpy(nb::handle dtype) {
  const NumPy& np = numpy();
  for (std::size_t i = 0; i < np.dtypes.size(); ++i) {
    if (np.dtypes[i] == dtype.ptr()) return static_cast<DType>(i);
  }
  static auto& known = *new std::vector<std::pair<PyObject*, DType>>;  // never freed: holds Python references
  for (const auto& [object, code] : known) {
    if (object == dtype.ptr()) return code;
  }
  const auto code = static_cast<DType>(nb::cast<int>(tables().attr("code_of_numpy")(dtype)));
  if (known.size() < kMaxKnownDTypes) known.emplace_back(dtype.inc_ref().ptr(), code);
  return code;
}

const Torch* torch() {
  static const Torch* found = nullptr;
  if (found != nullptr) return found;
  static PyObject* const name = interned("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name));
  if (!module.is_valid()) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return nullptr;
  }
  // A torch that is being imported right now has not everything yet.
  if (!nb::hasattr(module, "Tensor") || !nb::hasattr(module, "strided") || !nb::hasattr(module, "_C") ||
      !nb::hasattr(module.attr("_C"), "_from_dlpack")) {
    return nullptr;
  }
  found = new Torch{.tensor = type_of(module.attr("Tensor")),
                    .strided = nb::object(module.attr("strided")).release().ptr(),
                    .from_dlpack = nb::object(module.attr("_C").attr("_from_dlpack")).release().ptr(),
                    .dtypes = dtype_table(tables().attr("torch_dtypes")(module))};
  return found;
}

std::optional<DType> dtype_of_torch(const Torch& torch, PyObject* dtype) {
  for (std::size_t i = 0; i < torch.dtypes.size(); ++i) {
    if (torch.dtypes[i] == dtype) return static_cast<DType>(i);
  }
  return std::nullopt;
}

const Names& names() {
  static const Names all{.array_struct = interned("__array_struct__"),
                         .dtype = interned("dtype"),
                         .layout = interned("layout"),
                         .device = interned("device"),
                         .type = interned("type"),
                         .shape = interned("shape"),
                         .stride = interned("stride"),
                         .data_ptr = interned("data_ptr"),
                         .is_conj = interned("is_conj"),
                         .is_neg = interned("is_neg"),
                         .view = interned("view"),
                         .dlpack = interned("__dlpack__"),
                         .dlpack_device = interned("__dlpack_device__")};
  return all;
}

}  // namespace stagewire::python
