// See in_place_memory.h.
#include "in_place_memory.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "buffer_object.h"
#include "errors.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

bool lies_in(const Buffer& buffer, const std::byte* data, std::uint64_t length) {
  // Compared as addresses: the two may lie in different objects.
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
  return at >= begin && length <= buffer.size() && at - begin <= buffer.size() - length;
}

void add(InPlaceMemory& memory, nb::handle object, const std::string& name) {
  if (!nb::isinstance<BufferObject>(object) || !nb::inst_ready(object)) {
    raise_invalid("put", name + " is of type " + nb::type_name(object.type()).c_str() +
                             "; expected a Buffer, which Node.allocate() makes");
  }
  memory.buffers.push_back(nb::inst_ptr<BufferObject>(object)->buffer);
}

}  // namespace

void InPlaceMemory::check(const Tensor& tensor) const {
  const std::uint64_t length = tensor.bytes();
  if (length == 0) return;
  if (!tensor.contiguous()) {
    throw std::invalid_argument(
        "a tensor that is not contiguous: write it into the memory in row-major order, or publish a copy by "
        "put()");
  }
  const auto* data = static_cast<const std::byte*>(tensor.data);
  if (std::none_of(buffers.begin(), buffers.end(),
                   [&](const auto& buffer) { return lies_in(*buffer, data, length); })) {
    throw std::invalid_argument(
        "a tensor that lies outside the memory given: write it into an array over that memory, such as "
        "numpy.frombuffer(buffer, dtype), or publish a copy by put()");
  }
}

InPlaceMemory in_place_memory(nb::handle memory) {
  InPlaceMemory out;
  // Arrays and the like are sequences too, but of numbers.
  const bool several = PySequence_Check(memory.ptr()) != 0 && PyObject_CheckBuffer(memory.ptr()) == 0 &&
                       PyUnicode_Check(memory.ptr()) == 0;
  if (!several) {
    add(out, memory, "memory");
    return out;
  }
  std::size_t index = 0;
  for (nb::handle item : nb::iter(memory)) add(out, item, "memory[" + std::to_string(index++) + "]");
  return out;
}

}  // namespace stagewire::python
