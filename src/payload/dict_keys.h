// Finding a key that occurs twice in a dict, on both sides of the wire. Stateless; any thread.
#pragma once

#include <string>

#include <stagewire/payload/payload.h>

namespace stagewire {

/// A key that occurs more than once, or nullptr. O(n log n) comparisons in the worst case: sorting, unlike
/// hashing, cannot be slowed down by keys that a peer has chosen to collide.
const DictKey* find_duplicate_key(const Dict& dict);

/// The key for errors, quoted and cut to a readable length.
std::string key_text(const DictKey& key);

}  // namespace stagewire
