// The fixed-size hello of the handshake as a value, and its bytes. handshake.h shows the layout. Stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>

#include "session/handshake.h"

namespace stagewire {

/// Who speaks; in the transcript, so that one end's proof is never the other's.
enum class HelloRole : std::uint8_t { initiator = 1, responder = 2, refusal = 3 };

/// Why a responder refuses. Not authenticated: it decides over the words of an error alone.
enum class RefusalReason : std::uint8_t { none = 0, version = 1, auth_mode = 2, self = 3 };

struct Hello {
  AuthMode mode = AuthMode::secret;
  VersionRange versions;
  HelloRole role = HelloRole::initiator;
  RefusalReason reason = RefusalReason::none;
  std::uint16_t chosen = 0;
  NodeId node;
  std::array<std::byte, 32> nonce{};
  std::array<std::byte, 32> public_key{};
};

std::string write_hello(const Hello& hello);

/// Reads what has stood at the same place in every version: magic, purpose and the versions offered, so that
/// a version mismatch can be told from garbage. Errors: protocol.
Result<VersionRange> read_hello_versions(std::string_view bytes);
/// Reads the whole hello of a version that this node speaks. Errors: protocol.
Result<Hello> read_hello(std::string_view bytes);

}  // namespace stagewire
