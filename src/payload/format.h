// The numbers of the header format, shared by the encoder and the decoder. The format itself is described in
// encode.cc. Constants alone: any thread, no owner.
#pragma once

#include <cstdint>

namespace stagewire {

/// First element of every header. A change of the format that an old decoder would misread raises it.
inline constexpr std::uint64_t kHeaderVersion = 1;

/// First element of every array in the tree: what the array stands for.
enum class NodeTag : std::uint8_t {
  list = 0,    ///< [0, item, …]
  tuple = 1,   ///< [1, item, …]
  dict = 2,    ///< [2, key, value, key, value, …]
  tensor = 3,  ///< [3, index]
};
inline constexpr std::uint64_t kNodeTagCount = 4;

}  // namespace stagewire
