// NumPy and torch as the extension sees them: their tensor types and element types, looked up once. torch is
// never imported here; it is found once the caller has. With the interpreter lock held.
#pragma once

#include <array>
#include <nanobind/nanobind.h>
#include <optional>

#include <stagewire/payload/dtype.h>

namespace stagewire::python {

/// References that live as long as the process, so that nothing of them is touched after the interpreter's
/// end.
struct NumPy {
  PyTypeObject* ndarray;
  PyTypeObject* generic;                      ///< the base of NumPy's scalars
  std::array<PyObject*, kDTypeCount> dtypes;  ///< what a received tensor gets; indexed by DType
};
struct Torch {
  PyTypeObject* tensor;
  PyObject* strided;
  PyObject* from_dlpack;
  std::array<PyObject*, kDTypeCount> dtypes;  ///< nullptr: this torch has no such type
};

const NumPy& numpy();
/// The element type of a NumPy dtype object. Throws for unsupported ones, saying why.
DType dtype_of_numpy(nanobind::handle dtype);

/// Nullptr while nobody has imported torch.
const Torch* torch();
/// The element type of a torch dtype object; nothing for those that cannot be sent.
std::optional<DType> dtype_of_torch(const Torch& torch, PyObject* dtype);

/// Attribute names used per tensor, interned once.
struct Names {
  PyObject* array_struct;
  PyObject* dtype;
  PyObject* layout;
  PyObject* device;
  PyObject* type;
  PyObject* shape;
  PyObject* stride;
  PyObject* data_ptr;
  PyObject* is_conj;
  PyObject* is_neg;
  PyObject* view;
  PyObject* dlpack;
  PyObject* dlpack_device;
};
const Names& names();

}  // namespace stagewire::python
