// NodeId: which process, in which life. Random at every start, so a restarted process is a different node.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <stagewire/base/result.h>

namespace stagewire {

/// 16 random bytes. A plain value, ordered and hashable.
struct NodeId {
  std::array<std::uint8_t, 16> bytes{};

  /// A fresh random id from the kernel's generator.
  static NodeId random();
  /// Parses 32 hex digits. Errors: invalid_argument.
  static Result<NodeId> parse(std::string_view hex);
  /// 32 lower-case hex digits.
  std::string hex() const;
  /// The first 8 hex digits, for logs.
  std::string brief() const { return hex().substr(0, 8); }
  bool is_nil() const noexcept { return *this == NodeId{}; }

  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};

}  // namespace stagewire

template <>
struct std::hash<stagewire::NodeId> {
  std::size_t operator()(const stagewire::NodeId& id) const noexcept {
    // The bytes are random already: folding them is a good hash.
    std::size_t h = 0;
    for (std::size_t i = 0; i < id.bytes.size(); ++i) h = (h << 8U | h >> 56U) ^ id.bytes[i];
    return h;
  }
};
