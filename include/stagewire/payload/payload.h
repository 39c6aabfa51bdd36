// Payload: a tree of plain values whose leaves can be tensors. What a sender publishes and a receiver gets.
// Values own their scalars and containers; tensors refer to memory, kept alive by an optional hold.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <stagewire/base/result.h>
#include <stagewire/memory/memory_kind.h>
#include <stagewire/payload/dtype.h>

namespace stagewire {

/// The bytes of one tensor where they are now. Does not own them; `hold` does, if set.
struct Tensor {
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;  ///< elements per dimension; empty for a 0-d tensor
  std::vector<std::int64_t>
      strides;  ///< bytes per step of each dimension (may be negative or 0); empty: row-major contiguous
  const void* data = nullptr;  ///< element [0, …, 0]; may be null when a dimension is 0
  MemoryKind kind = MemoryKind::host();
  bool read_only = true;             ///< false where the receiver owns the memory and may write it
  std::shared_ptr<const void> hold;  ///< keeps `data` valid: a lease, a buffer, a caller's object

  /// Product of the shape. Meaningful for checked shapes (over(), encode() and decode_header() refuse
  /// negative dimensions and overflow); wraps around for others.
  std::uint64_t elements() const noexcept;
  /// elements() × size_of(dtype): the bytes of the packed tensor.
  std::uint64_t bytes() const noexcept;
  /// Whether the bytes lie in row-major order without gaps; empty tensors are.
  bool contiguous() const noexcept;

  /// A contiguous tensor over `data`. Errors: invalid_argument (more than 32 dimensions, a negative one, more
  /// than 2^47 bytes, null data of a non-empty tensor).
  static Result<Tensor> over(DType dtype, std::vector<std::int64_t> shape, const void* data,
                             std::shared_ptr<const void> hold = nullptr);
};

class Value;

/// Bytes as distinct from text.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};
struct List {
  std::vector<Value> items;
  friend bool operator==(const List& a, const List& b);
};
struct Tuple {
  std::vector<Value> items;
  friend bool operator==(const Tuple& a, const Tuple& b);
};
/// A dict key: text, integer or bytes.
using DictKey = std::variant<std::string, std::int64_t, Bytes>;
/// A dict with its insertion order. Keys are unique; the codec refuses duplicates.
struct Dict {
  std::vector<std::pair<DictKey, Value>> items;
  /// The value of a text key, or nullptr. Linear: dicts of payloads are small.
  const Value* find(std::string_view key) const noexcept;
  /// Order counts.
  friend bool operator==(const Dict& a, const Dict& b);
};
/// Refers to entry `index` of the payload's tensors; the same index may occur more than once.
struct TensorRef {
  std::uint32_t index = 0;
  friend bool operator==(TensorRef, TensorRef) = default;
};

/// One node of the tree.
class Value {
 public:
  using Variant = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes,
                               List, Tuple, Dict, TensorRef>;
  Value() = default;  ///< None
  template <typename T>
    requires std::is_constructible_v<Variant, T&&>
  Value(T&& v)
      : v_(std::forward<T>(v)) {
  }  // NOLINT(google-explicit-constructor): values read as literals in call sites
  Value(const char* text) : v_(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Value(int number) : v_(std::int64_t{number}) {}     // NOLINT(google-explicit-constructor)

  Variant& variant() noexcept { return v_; }
  const Variant& variant() const noexcept { return v_; }
  template <typename T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&v_);
  }
  template <typename T>
  T* get_if() noexcept {
    return std::get_if<T>(&v_);
  }
  bool is_none() const noexcept { return std::holds_alternative<std::monostate>(v_); }
  /// Same types, same values, dict items in the same order; tensor references by index; NaN differs from
  /// itself. Recursive: for trees within the codec's bound of 64 levels.
  friend bool operator==(const Value& a, const Value& b);

 private:
  Variant v_;
};

/// A tree and the tensors it refers to.
class Payload {
 public:
  Payload() = default;
  Payload(Value root, std::vector<Tensor> tensors) : root_(std::move(root)), tensors_(std::move(tensors)) {}
  /// A payload that is one tensor.
  static Payload of(Tensor tensor);
  /// A flat dict of named tensors, the usual shape of a KV cache.
  static Payload of(std::vector<std::pair<std::string, Tensor>> tensors);

  const Value& root() const noexcept { return root_; }
  Value& root() noexcept { return root_; }
  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  std::vector<Tensor>& tensors() noexcept { return tensors_; }
  /// Adds a tensor and returns the reference to put into the tree.
  TensorRef add(Tensor tensor);
  /// The tensor under a text key of a root dict, or of a root that is a tensor when `key` is empty; nullptr
  /// otherwise.
  const Tensor* find(std::string_view key) const noexcept;
  /// Sum of the tensors' packed bytes.
  std::uint64_t tensor_bytes() const noexcept;

 private:
  Value root_;
  std::vector<Tensor> tensors_;
};

}  // namespace stagewire
