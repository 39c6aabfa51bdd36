// What the payload tests share: building tensors over owned bytes and reading strided ones element by
// element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <stagewire/payload/payload.h>

#include "payload/codec.h"

namespace stagewire::testing {

using BytesVector = std::vector<std::byte>;

inline BytesVector random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 generator(seed);
  BytesVector bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(generator() & 0xFFU);
  return bytes;
}

/// A contiguous tensor over random bytes that it owns.
inline Tensor random_tensor(DType dtype, std::vector<std::int64_t> shape, std::uint32_t seed) {
  Tensor probe;
  probe.dtype = dtype;
  probe.shape = shape;
  auto bytes = std::make_shared<BytesVector>(random_bytes(probe.bytes(), seed));
  const void* data = bytes->data();
  return Tensor::over(dtype, std::move(shape), data, std::move(bytes)).value();
}

/// The packed bytes of any tensor, one element at a time: what gather() must produce.
inline BytesVector packed(const Tensor& t) {
  BytesVector out;
  const std::size_t size = size_of(t.dtype);
  std::vector<std::int64_t> strides = t.strides;
  if (strides.empty()) {
    strides.resize(t.shape.size());
    auto stride = static_cast<std::int64_t>(size);
    for (std::size_t i = t.shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= t.shape[i];
    }
  }
  std::vector<std::int64_t> index(t.shape.size(), 0);
  const std::uint64_t count = t.elements();
  for (std::uint64_t n = 0; n < count; ++n) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
    const auto* from = static_cast<const std::byte*>(t.data) + offset;
    out.insert(out.end(), from, from + size);
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < t.shape[i]) break;
      index[i] = 0;
    }
  }
  return out;
}

inline std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out += kDigits[b >> 4U];
    out += kDigits[b & 15U];
  }
  return out;
}

inline std::string unhex(std::string_view digits) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::string out;
  std::string packed_digits;
  for (const char c : digits) {
    if (c != ' ') packed_digits += c;
  }
  for (std::size_t i = 0; i + 1 < packed_digits.size(); i += 2) {
    out += static_cast<char>(digit(packed_digits[i]) << 4U | digit(packed_digits[i + 1]));
  }
  return out;
}

/// A payload with one of everything, for round trips and as the seed of mutations.
inline Payload sample_payload() {
  Payload payload;
  const TensorRef k = payload.add(random_tensor(DType::bf16, {2, 3, 4}, 1));
  const TensorRef v = payload.add(random_tensor(DType::f8_e4m3fn, {5}, 2));
  Dict dict;
  dict.items.emplace_back(DictKey("layer.0"), Value(Tuple{{Value(k), Value(v)}}));
  dict.items.emplace_back(DictKey(std::int64_t{-7}),
                          Value(List{{Value(), Value(true), Value(1.5), Value(k)}}));
  dict.items.emplace_back(DictKey(Bytes{std::string("\xff\x00", 2)}), Value(Bytes{"raw"}));
  dict.items.emplace_back(DictKey("text"), Value("grüße"));
  payload.root() = std::move(dict);
  return payload;
}

}  // namespace stagewire::testing
