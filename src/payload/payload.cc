// Helpers of Tensor, Value and Payload. Thread-compatible; nothing is shared.
#include <stagewire/payload/payload.h>

#include "payload/layout.h"
#include "payload/limits.h"

namespace stagewire {

std::uint64_t Tensor::elements() const noexcept {
  std::uint64_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::uint64_t>(dim);
  return count;
}

std::uint64_t Tensor::bytes() const noexcept {
  return elements() * size_of(dtype);
}

bool Tensor::contiguous() const noexcept {
  if (strides.empty()) return true;
  if (strides.size() != shape.size()) return false;
  if (elements() == 0) return true;
  std::uint64_t expected = size_of(dtype);
  for (std::size_t i = shape.size(); i-- > 0;) {
    // The stride of a dimension of 1 is never used, and NumPy and torch leave anything in it.
    if (shape[i] == 1) continue;
    if (static_cast<std::uint64_t>(strides[i]) != expected) return false;
    expected *= static_cast<std::uint64_t>(shape[i]);
  }
  return true;
}

Result<Tensor> Tensor::over(DType dtype, std::vector<std::int64_t> shape, const void* data,
                            std::shared_ptr<const void> hold) {
  if (shape.size() > kMaxDims) {
    return Error(ErrorKind::invalid_argument, "a tensor of " + std::to_string(shape.size()) +
                                                  " dimensions; expected at most " +
                                                  std::to_string(kMaxDims));
  }
  const auto bytes = packed_bytes(dtype, shape);
  if (!bytes) {
    return Error(ErrorKind::invalid_argument,
                 "shape " + shape_text(shape) + " of " + std::string(to_string(dtype)) +
                     " has a negative dimension or more than " + std::to_string(kMaxBodySize) + " bytes");
  }
  if (data == nullptr && *bytes > 0) {
    return Error(ErrorKind::invalid_argument, "null data for a tensor of shape " + shape_text(shape) + ", " +
                                                  std::to_string(*bytes) + " bytes");
  }
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = data;
  tensor.hold = std::move(hold);
  return tensor;
}

const Value* Dict::find(std::string_view key) const noexcept {
  for (const auto& [name, value] : items) {
    const auto* text = std::get_if<std::string>(&name);
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

bool operator==(const Value& a, const Value& b) {
  return a.variant() == b.variant();
}
bool operator==(const List& a, const List& b) {
  return a.items == b.items;
}
bool operator==(const Tuple& a, const Tuple& b) {
  return a.items == b.items;
}
bool operator==(const Dict& a, const Dict& b) {
  return a.items == b.items;
}

Payload Payload::of(Tensor tensor) {
  Payload payload;
  payload.root_ = payload.add(std::move(tensor));
  return payload;
}

Payload Payload::of(std::vector<std::pair<std::string, Tensor>> tensors) {
  Payload payload;
  payload.tensors_.reserve(tensors.size());
  Dict dict;
  dict.items.reserve(tensors.size());
  for (auto& [name, tensor] : tensors) {
    dict.items.emplace_back(std::move(name), Value(payload.add(std::move(tensor))));
  }
  payload.root_ = std::move(dict);
  return payload;
}

TensorRef Payload::add(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return TensorRef{static_cast<std::uint32_t>(tensors_.size() - 1)};
}

const Tensor* Payload::find(std::string_view key) const noexcept {
  const Value* value = &root_;
  if (const auto* dict = root_.get_if<Dict>()) {
    value = dict->find(key);
  } else if (!key.empty()) {
    value = nullptr;
  }
  const auto* ref = value == nullptr ? nullptr : value->get_if<TensorRef>();
  return ref == nullptr || ref->index >= tensors_.size() ? nullptr : &tensors_[ref->index];
}

std::uint64_t Payload::tensor_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : tensors_) sum += tensor.bytes();
  return sum;
}

}  // namespace stagewire
