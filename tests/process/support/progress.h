// Whether bytes have begun to arrive in a destination that a transport is writing to meanwhile. Header only.
#pragma once

#include <algorithm>
#include <cstddef>

namespace stagewire::test {

/// Reads without synchronization on purpose: it only asks whether something happened, and is believed only in
/// one direction.
__attribute__((no_sanitize("thread"))) inline bool has_begun(const std::byte* data, std::size_t size) {
  const std::size_t looked_at = std::min<std::size_t>(size, 4096);
  for (std::size_t i = 0; i < looked_at; ++i) {
    if (static_cast<const volatile std::byte*>(data)[i] != std::byte{0}) return true;
  }
  return false;
}

}  // namespace stagewire::test
