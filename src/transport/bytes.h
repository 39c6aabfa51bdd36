// Little-endian integers in byte strings, for tokens and data-connection frames. Stateless; any thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace stagewire::bytes {

/// Appends `value`.
template <std::unsigned_integral T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFFU));
}

/// Reads a T from `data`, which holds at least sizeof(T) bytes.
template <std::unsigned_integral T>
T get(const void* data) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  return value;
}

}  // namespace stagewire::bytes
