// Memory: the bytes of one received tensor as a Python object with the buffer protocol. Arrays are made over
// it and keep it alive; when the last one is gone, the lease or the pool memory behind it goes too. Also the
// ways to make a NumPy array or a torch tensor over such bytes. With the interpreter lock held.
#pragma once

#include <cstddef>
#include <memory>
#include <nanobind/nanobind.h>

#include <stagewire/payload/payload.h>

namespace stagewire::python {

struct Memory {
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool writable = false;
  std::shared_ptr<const void> hold;
};

/// A NumPy array over the tensor's memory: read-only if the tensor is.
nanobind::object numpy_over(const Tensor& tensor);
/// A torch tensor over the tensor's memory, writable whatever the tensor says: torch knows no other. A NumPy
/// array where this torch lacks the element type.
nanobind::object torch_over(const Tensor& tensor);

void bind_memory(nanobind::module_& m);

}  // namespace stagewire::python
