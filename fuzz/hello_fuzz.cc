// libFuzzer target: everything that is parsed before a peer has proven itself. The input is given to both
// ends of a handshake and to the parsers of data connections; none of it may ever be taken for a proof.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "session/handshake.h"
#include "session/wire.h"

namespace {

using namespace stagewire;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const Error& error) {
  require(error.kind() == ErrorKind::protocol || error.kind() == ErrorKind::auth_failed ||
          error.kind() == ErrorKind::version_mismatch);
  require(wire::printable(error.message(), 4096) == error.message());
}

HandshakeConfig config(std::uint8_t settings) {
  HandshakeConfig out;
  out.self.bytes.fill(0x11);
  out.mode = static_cast<AuthMode>(1 + settings % 3);
  for (int i = 0; i < 32; ++i) out.secret += static_cast<char>(i);
  if ((settings & 0x40U) != 0) out.versions = {2, 5};
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t settings = data[0];
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);

  const Result<HelloPurpose> purpose = peek_purpose(input);
  if (!purpose.ok()) check_error(purpose.error());
  const Result<DataHello> data_hello = parse_data_hello(input.substr(0, kHelloSize));
  if (data_hello.ok()) {
    require(*purpose == HelloPurpose::data);
    require(!verify_data_hello(*data_hello, SessionKey{}));
  } else {
    check_error(data_hello.error());
  }

  ResponderHandshake responder(config(settings));
  std::string refusal;
  const Result<std::string> reply = responder.on_hello(input.substr(0, kHelloSize), refusal);
  if (reply.ok()) {
    require(reply->size() == kHelloSize + kProofSize && refusal.empty());
    const std::string_view proof = input.size() > kHelloSize ? input.substr(kHelloSize) : std::string_view();
    const Result<HandshakeResult> result = responder.on_proof(proof);
    require(!result.ok());
    check_error(result.error());
  } else {
    require(refusal.empty() || refusal.size() == kHelloSize + kProofSize);
    check_error(reply.error());
  }

  InitiatorHandshake initiator(config(settings));
  const Result<std::string> proof = initiator.on_reply(input);
  require(!proof.ok());
  check_error(proof.error());
  return 0;
}
