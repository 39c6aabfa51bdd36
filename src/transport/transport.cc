// Defaults of the transport interface. No state.
#include "transport/transport.h"

namespace stagewire {

Status Link::adopt(Fd /*connection*/, std::uint64_t /*index*/) {
  return Error(ErrorKind::protocol, "this transport takes no data connections");
}

Status check_exportable(const ExportedMemory& memory, std::string_view transport) {
  if (memory.base == nullptr) return Error(ErrorKind::invalid_argument, "no memory was given to export");
  if (!memory.kind.is_host()) {
    return Error(ErrorKind::not_viable, std::string(transport) + " moves host memory in this version; " +
                                            memory.name + " is " + to_string(memory.kind) + " memory");
  }
  if (memory.pool != nullptr && memory.pool->use() != PoolUse::publish) {
    return Error(ErrorKind::invalid_argument,
                 "pool '" + memory.name + "' is receive memory, which never leaves its process");
  }
  return {};
}

}  // namespace stagewire
