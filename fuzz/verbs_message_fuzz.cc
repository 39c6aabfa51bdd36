// libFuzzer target: the verbs transport's hello and messages. Whatever decodes encodes to the same bytes, and
// everything else is a protocol error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/verbs/verbs_wire.h"

namespace {

using namespace stagewire;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = verbs_wire::decode(bytes);
  if (message.ok()) {
    require(verbs_wire::encode(*message) == bytes);
  } else {
    require(message.error().kind() == ErrorKind::protocol);
  }
  const auto hello = verbs_wire::decode_hello(bytes);
  if (hello.ok()) {
    require(verbs_wire::encode(*hello) == bytes);
  } else {
    require(hello.error().kind() == ErrorKind::protocol ||
            hello.error().kind() == ErrorKind::version_mismatch);
  }
  return 0;
}
