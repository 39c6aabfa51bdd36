// See pattern.h.
#include "process/support/pattern.h"

#include <algorithm>
#include <cstring>

namespace stagewire::test {

namespace {

// The finalizer of splitmix64: consecutive inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

std::uint64_t word(std::uint64_t seed, std::uint64_t index) {
  return mix(seed * 0x9e3779b97f4a7c15ULL + index);
}

std::uint64_t aligned(std::uint64_t size) {
  return (size + 255) / 256 * 256;
}

Payload over(const Pattern& pattern, std::byte* memory, const std::shared_ptr<const void>& hold) {
  Dict dict;
  Payload payload;
  for (std::uint64_t part = 0; part < pattern.parts; ++part) {
    const std::uint64_t size = pattern.part_size(part);
    fill_pattern(memory, size, pattern.part_seed(part));
    Tensor tensor;
    tensor.shape = {static_cast<std::int64_t>(size)};
    tensor.data = memory;
    tensor.hold = hold;
    dict.items.emplace_back("t" + std::to_string(part), payload.add(std::move(tensor)));
    memory += aligned(size);
  }
  dict.items.emplace_back("seed", static_cast<std::int64_t>(pattern.seed));
  payload.root() = std::move(dict);
  return payload;
}

}  // namespace

void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t value = word(seed, i);
    std::memcpy(data + i, &value, std::min(sizeof(value), size - i));
  }
}

bool matches_pattern(const std::byte* data, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t value = word(seed, i);
    if (std::memcmp(data + i, &value, std::min(sizeof(value), size - i)) != 0) return false;
  }
  return true;
}

std::uint64_t Pattern::part_size(std::uint64_t part) const {
  const std::uint64_t each = size / parts;
  return part + 1 == parts ? size - each * (parts - 1) : each;
}

Payload make_payload(const Pattern& pattern) {
  auto memory = std::make_shared<std::vector<std::byte>>(pattern.size + 256 * pattern.parts);
  std::byte* data = memory->data();
  return over(pattern, data, std::move(memory));
}

Payload make_payload_in(const Pattern& pattern, std::byte* memory) {
  return over(pattern, memory, nullptr);
}

std::string mismatch(const Payload& payload, const Pattern& pattern) {
  const Dict* dict = payload.root().get_if<Dict>();
  if (dict == nullptr) return "the root is not a dict";
  const Value* seed = dict->find("seed");
  const auto* number = seed == nullptr ? nullptr : seed->get_if<std::int64_t>();
  if (number == nullptr || *number != static_cast<std::int64_t>(pattern.seed))
    return "it is another payload: seed " + std::to_string(number == nullptr ? -1 : *number) +
           " instead of " + std::to_string(pattern.seed);
  if (payload.tensors().size() != pattern.parts)
    return "it has " + std::to_string(payload.tensors().size()) + " tensors";
  for (std::uint64_t part = 0; part < pattern.parts; ++part) {
    const Tensor* tensor = payload.find("t" + std::to_string(part));
    if (tensor == nullptr) return "tensor " + std::to_string(part) + " is missing";
    if (tensor->bytes() != pattern.part_size(part))
      return "tensor " + std::to_string(part) + " has " + std::to_string(tensor->bytes()) + " bytes";
    if (!matches_pattern(static_cast<const std::byte*>(tensor->data), tensor->bytes(),
                         pattern.part_seed(part)))
      return "tensor " + std::to_string(part) + " has wrong bytes";
  }
  return {};
}

std::vector<std::byte> packed_bytes(const Pattern& pattern) {
  std::vector<std::byte> bytes(pattern.size);
  std::byte* data = bytes.data();
  for (std::uint64_t part = 0; part < pattern.parts; ++part) {
    fill_pattern(data, pattern.part_size(part), pattern.part_seed(part));
    data += pattern.part_size(part);
  }
  return bytes;
}

}  // namespace stagewire::test
