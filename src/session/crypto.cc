// The few primitives that the session layer takes from libsodium. Any thread.
#include "session/crypto.h"

#include <cstdio>
#include <cstdlib>
#include <sodium.h>

namespace stagewire::crypto {

namespace {
unsigned char* raw(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}
}  // namespace

void ensure_sodium() noexcept {
  static const int result = sodium_init();
  if (result < 0) {
    std::fputs("stagewire: libsodium could not be initialised: the system gives no random numbers\n", stderr);
    std::abort();
  }
}

Key hash(std::span<const std::byte> key, std::initializer_list<std::string_view> parts) noexcept {
  ensure_sodium();
  Key out;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.empty() ? nullptr : raw(key.data()), key.size(), out.size());
  for (const std::string_view part : parts) {
    std::array<unsigned char, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) {
      length[i] = static_cast<unsigned char>(std::uint64_t{part.size()} >> (8 * i) & 0xFFU);
    }
    crypto_generichash_update(&state, length.data(), length.size());
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(part.data()), part.size());
  }
  crypto_generichash_final(&state, raw(out.data()), out.size());
  sodium_memzero(&state, sizeof state);
  return out;
}

void fill_random(std::span<std::byte> out) noexcept {
  ensure_sodium();
  randombytes_buf(out.data(), out.size());
}

void wipe(std::span<std::byte> memory) noexcept {
  sodium_memzero(memory.data(), memory.size());
}

bool equal(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace stagewire::crypto
