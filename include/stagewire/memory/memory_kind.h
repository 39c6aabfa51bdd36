// MemoryKind: where bytes live. Only host memory is implemented in this version; the type leaves the place
// for device memory so that no interface changes when it comes.
#pragma once

#include <cstdint>
#include <string>

namespace stagewire {

/// The kind of memory a tensor, pool or buffer lives in: "host" or "cuda:N". A plain value.
struct MemoryKind {
  enum class Type : std::uint8_t { host = 0, cuda = 1 };

  Type type = Type::host;
  std::uint16_t device = 0;  ///< ordinal in this process; meaningful for cuda alone

  static constexpr MemoryKind host() noexcept { return {}; }
  constexpr bool is_host() const noexcept { return type == Type::host; }
  friend constexpr bool operator==(MemoryKind, MemoryKind) noexcept = default;
};

/// "host" or "cuda:N".
std::string to_string(MemoryKind kind);

}  // namespace stagewire
