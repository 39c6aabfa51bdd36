// What the handshake tests share: configurations, and a whole handshake run in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "session/handshake.h"
#include "session/hello.h"

namespace stagewire {

inline constexpr AuthMode kModes[] = {AuthMode::secret, AuthMode::user, AuthMode::insecure};

// Offsets within a hello, as the layout in handshake.h says.
inline constexpr std::size_t kModeAt = 5;
inline constexpr std::size_t kMinAt = 6;
inline constexpr std::size_t kMaxAt = 8;
inline constexpr std::size_t kRoleAt = 10;
inline constexpr std::size_t kReasonAt = 11;
inline constexpr std::size_t kChosenAt = 12;
inline constexpr std::size_t kNodeAt = 16;
inline constexpr std::size_t kKeyAt = 64;

inline std::string test_secret(char salt = 0) {
  std::string out;
  for (int i = 0; i < 32; ++i) out += static_cast<char>(i * 7 + salt);
  return out;
}

inline HandshakeConfig config(AuthMode mode = AuthMode::secret, VersionRange versions = {}) {
  HandshakeConfig out;
  out.self = NodeId::random();
  out.mode = mode;
  if (mode == AuthMode::secret) out.secret = test_secret();
  out.versions = versions;
  return out;
}

/// What became of one handshake: what each end has to say.
struct Attempt {
  std::optional<Result<std::string>> reply;    ///< responder, of the hello
  std::optional<Result<std::string>> proof;    ///< initiator, of the reply or the refusal
  std::optional<Result<HandshakeResult>> end;  ///< responder, of the proof
  HandshakeResult initiator;
  std::string refusal;
};

inline std::string untouched(std::string bytes) {
  return bytes;
}

/// Runs it all, with each message passed through a function on its way.
template <typename OnHello, typename OnReply, typename OnProof>
Attempt run(const HandshakeConfig& a, const HandshakeConfig& b, OnHello on_hello, OnReply on_reply,
            OnProof on_proof) {
  Attempt out;
  InitiatorHandshake initiator(a);
  ResponderHandshake responder(b);
  out.reply = responder.on_hello(on_hello(initiator.hello()), out.refusal);
  if (!out.reply->ok()) {
    if (!out.refusal.empty()) out.proof = initiator.on_reply(on_reply(out.refusal));
    return out;
  }
  out.proof = initiator.on_reply(on_reply(out.reply->value()));
  if (!out.proof->ok()) return out;
  out.initiator = initiator.result();
  out.end = responder.on_proof(on_proof(out.proof->value()));
  return out;
}
inline Attempt run(const HandshakeConfig& a, const HandshakeConfig& b) {
  return run(a, b, untouched, untouched, untouched);
}

inline bool succeeded(const Attempt& out) {
  return out.end && out.end->ok();
}

/// The first error of a run.
inline Error first_error(const Attempt& out) {
  if (out.reply && !out.reply->ok()) return out.reply->error();
  if (out.proof && !out.proof->ok()) return out.proof->error();
  if (out.end && !out.end->ok()) return out.end->error();
  return Error(ErrorKind::internal, "no error");
}

}  // namespace stagewire
