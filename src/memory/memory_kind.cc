// The text of a MemoryKind, as configuration, errors and the wire spell it. Any thread; owns nothing.
#include <stagewire/memory/memory_kind.h>

namespace stagewire {

std::string to_string(MemoryKind kind) {
  if (kind.is_host()) return "host";
  return "cuda:" + std::to_string(kind.device);
}

}  // namespace stagewire
