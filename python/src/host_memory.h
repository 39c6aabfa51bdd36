// The caller's own memory as one stretch of bytes, whatever its elements are. With the interpreter lock held.
#pragma once

#include <cstdint>
#include <nanobind/nanobind.h>
#include <vector>

namespace stagewire::python {

/// Where the bytes of a Python object lie, and what keeps them there. Objects with the buffer protocol can't
/// be resized or closed while `owners` lives.
struct HostMemory {
  const void* data = nullptr;
  std::uint64_t size = 0;  ///< bytes
  std::vector<nanobind::object> owners;
};

/// The memory of an array, a tensor or anything with the buffer protocol, which must be contiguous
/// (row-major) and may be read-only. Throws stagewire.InvalidArgument and stagewire.NotViable (device memory)
/// of `operation`.
HostMemory host_memory(nanobind::handle object, const char* operation);

}  // namespace stagewire::python
