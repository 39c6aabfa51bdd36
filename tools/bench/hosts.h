// What `bench serve` and `bench run` on another host agree on: the payloads, and the catalog that names them.
// Values and functions of the main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <stagewire/node/ticket.h>
#include <stagewire/payload/payload.h>

namespace stagewire::tools {

/// Of the bytes that are served.
inline constexpr std::uint64_t kServedSeed = 7;
inline constexpr std::uint64_t kSmallestServed = 8;
inline constexpr std::uint64_t kLargestServed = 1ULL << 30;
/// Tensors of the dict that the mode `object` gets.
inline constexpr std::uint64_t kObjectTensors = 56;

/// A dict's tensors are equal and whole words: the size is cut down to a multiple of 56 × 8 bytes. 0 for
/// sizes that are not served as a dict.
constexpr std::uint64_t object_size(std::uint64_t size) {
  return size / (kObjectTensors * 8) * (kObjectTensors * 8);
}

/// The key under which the catalog is published, for any number of readers.
Key catalog_key();

/// What a server has, by size.
struct Catalog {
  std::map<std::uint64_t, Ticket> flat;    ///< one tensor
  std::map<std::uint64_t, Ticket> object;  ///< a dict of 56, by the size it was cut down from
  std::map<std::uint64_t, Ticket>
      inlined;                  ///< one tensor that a copying put took, and that comes in the grant
  std::uint16_t echo_port = 0;  ///< of a bare TCP echo; 0: none

  Payload to_payload() const;
  /// Errors: protocol (it is not a catalog).
  static Result<Catalog> parse(const Payload& payload);
  /// "8 B, 4 KiB, … and 1 GiB".
  std::string sizes_text() const;
};

}  // namespace stagewire::tools
