// Tensors of the caller (NumPy, torch, DLPack, buffer protocol) described for the core without a copy. With
// the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>
#include <stdexcept>

#include <stagewire/payload/payload.h>

namespace stagewire::python {

/// A tensor of the caller, and the object that keeps its memory.
struct ImportedTensor {
  Tensor tensor;  ///< `read_only` says whether the caller's memory may be written
  nanobind::object owner;
};

/// Why a tensor cannot be taken: it lies in the memory of a device.
struct DeviceMemory : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// False if `object` is nothing that holds a tensor. Throws a text (std::invalid_argument) that says why a
/// tensor cannot be taken: its element type, its device (DeviceMemory), its layout.
bool import_tensor(nanobind::handle object, ImportedTensor& out);

}  // namespace stagewire::python
