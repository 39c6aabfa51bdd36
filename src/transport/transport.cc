// Defaults of the transport interface. No state.
#include "transport/transport.h"

namespace stagewire {

Status Link::adopt(Fd /*connection*/, std::uint64_t /*index*/) {
  return Error(ErrorKind::protocol, "this transport takes no data connections");
}

}  // namespace stagewire
