// Payloads of seeded bytes: whoever knows seed, size and number of parts can tell whether a payload arrived
// whole. Free functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <stagewire/node/ticket.h>
#include <stagewire/payload/payload.h>

namespace stagewire::test {

/// Byte i of the stream that `seed` names; no two streams agree for long.
void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed);
bool matches_pattern(const std::byte* data, std::size_t size, std::uint64_t seed);

/// A key without namespace and edge.
inline Key key_named(std::string key) {
  Key result;
  result.key = std::move(key);
  return result;
}

/// What a patterned payload is made of.
struct Pattern {
  std::uint64_t seed = 1;
  std::uint64_t size = 0;   ///< bytes of all tensors
  std::uint64_t parts = 1;  ///< tensors, named t0, t1, …; of equal size but for the last

  std::uint64_t part_size(std::uint64_t part) const;
  std::uint64_t part_seed(std::uint64_t part) const { return seed * 1'000'003 + part; }
};

/// A dict of the parts and of "seed", over memory that the payload keeps alive.
Payload make_payload(const Pattern& pattern);
/// The same over memory of the caller's of at least packed size, part after part at multiples of 256.
Payload make_payload_in(const Pattern& pattern, std::byte* memory);
/// "" if the payload is exactly the pattern's, else what is wrong.
std::string mismatch(const Payload& payload, const Pattern& pattern);
/// The packed bytes, part after part without gaps.
std::vector<std::byte> packed_bytes(const Pattern& pattern);

}  // namespace stagewire::test
