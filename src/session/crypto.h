// What the files of the session layer that use libsodium share. Stateless but for libsodium's one-time
// initialisation, which ensure_sodium() does safely from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "session/handshake.h"

namespace stagewire::crypto {

using Key = std::array<std::byte, 32>;

/// Initialises libsodium on first use; aborts with a message if the system has no random numbers to give,
/// because nothing secure can be done then.
void ensure_sodium() noexcept;

/// BLAKE2b-256 over `parts`, each preceded by its length so that no two lists of parts give the same input;
/// keyed (a MAC) unless `key` is empty.
Key hash(std::span<const std::byte> key, std::initializer_list<std::string_view> parts) noexcept;

/// Random bytes from the kernel's generator.
void fill_random(std::span<std::byte> out) noexcept;

/// Overwrites memory in a way that the compiler keeps.
void wipe(std::span<std::byte> memory) noexcept;

/// Compares without telling by time where the first difference is.
bool equal(std::string_view a, std::string_view b) noexcept;

inline std::string_view view(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace stagewire::crypto
