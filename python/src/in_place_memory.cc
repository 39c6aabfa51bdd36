// See in_place_memory.h.
#include "in_place_memory.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "buffer_object.h"
#include "errors.h"
#include "region_object.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

/// In a Buffer or a Region.
template <typename Memory>
bool lies_in(const Memory& memory, const std::byte* data, std::uint64_t length) {
  // Compared as addresses: the two may lie in different objects.
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return at >= begin && length <= memory.size() && at - begin <= memory.size() - length;
}

template <typename Memory>
bool lies_in_any(const std::vector<std::shared_ptr<Memory>>& all, const std::byte* data,
                 std::uint64_t length) {
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return lies_in(*one, data, length); });
}

void add(InPlaceMemory& memory, nb::handle object, const std::string& name) {
  if (nb::isinstance<BufferObject>(object) && nb::inst_ready(object)) {
    memory.buffers.push_back(nb::inst_ptr<BufferObject>(object)->buffer);
  } else if (nb::isinstance<RegionObject>(object) && nb::inst_ready(object)) {
    const auto* region = nb::inst_ptr<RegionObject>(object);
    region->check_alive("put");
    memory.region_objects.push_back(nb::borrow(object));
    memory.regions.push_back(region->region);
  } else {
    raise_invalid("put", name + " is of type " + nb::type_name(object.type()).c_str() +
                             "; expected a Buffer, which Node.allocate() makes, or a Region, which "
                             "Node.register() makes");
  }
  if (!memory.buffers.empty() && !memory.regions.empty()) {
    const bool region = nb::isinstance<RegionObject>(object);
    raise_invalid("put", name + (region ? " is a Region" : " is a Buffer") +
                             ", and what stands before it is not: a payload lies in buffers or in regions, "
                             "not in a mixture of both");
  }
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
  if (lies_in_any(buffers, data, length) || lies_in_any(regions, data, length)) return;
  throw std::invalid_argument(
      regions.empty()
          ? "a tensor that lies outside the memory given: write it into an array over that memory, such as "
            "numpy.frombuffer(buffer, dtype), or publish a copy by put()"
          : "a tensor that lies outside the regions given: it must be a view of what was registered; or "
            "publish "
            "a copy by put()");
}

Result<Ticket> InPlaceMemory::publish(Node& node, const Key& key, const Payload& payload,
                                      PutOptions options) const {
  if (!regions.empty()) return node.put_in_regions(key, payload, regions, std::move(options));
  return node.put_in_place(key, payload, buffers, std::move(options));
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
