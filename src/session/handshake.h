// The handshake as pure state machines: bytes in, bytes out, no sockets, no clock. Mutual authentication by
// MACs over a transcript of role, versions, node ids, nonces and ephemeral X25519 keys (libsodium); the
// session key comes from the key exchange and the shared secret. Fixed sizes: nothing of variable length is
// parsed before the peer has proven itself. One object per connection attempt; thread-compatible.
//
//   initiator → responder   Hello (kHelloSize)
//   responder → initiator   Hello (kHelloSize) + proof (kProofSize)
//   initiator → responder   proof (kProofSize)
//
// A hello, integers little-endian:
//
//   0   4  magic "STGW"            10  1  role: 1 initiator, 2 responder, 3 refusal
//   4   1  purpose: 1 control      11  1  reason of a refusal, else 0
//   5   1  auth mode               12  2  chosen version (responder), else 0
//   6   2  lowest version offered  14  2  zero
//   8   2  highest                 16 16  node id    32 32  nonce    64 32  X25519 key    96 32  zero
//
// A data connection instead opens with one DataHello (kHelloSize) and is answered by a one-byte verdict:
//
//   0   4  magic   4  1  purpose: 2 data   5 11  zero   16 16  session   32 8  index   40 32  MAC   72 56
//   zero
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>

#include "session/wire.h"

namespace stagewire {

inline constexpr std::size_t kHelloSize = 128;
inline constexpr std::size_t kProofSize = 32;
inline constexpr std::size_t kKeySize = 32;
inline constexpr std::size_t kMinSecretSize = 32;

using SessionKey = std::array<std::byte, kKeySize>;
using SessionTag = std::array<std::byte, 16>;  ///< names a session at both ends; not secret

/// How the two ends trust each other. Part of the hello; a mismatch is a typed error at both ends.
enum class AuthMode : std::uint8_t {
  secret = 1,    ///< a shared secret of ≥ kMinSecretSize bytes
  user = 2,      ///< Unix socket, same effective user, checked with SO_PEERCRED by the caller of this code
  insecure = 3,  ///< asked for explicitly
};

std::string_view to_string(AuthMode mode) noexcept;

/// The protocol versions that a node speaks, both ends included; 1 ≤ min ≤ max.
struct VersionRange {
  std::uint16_t min = wire::kVersionMin;
  std::uint16_t max = wire::kVersionMax;
  friend bool operator==(VersionRange, VersionRange) = default;
};
/// The highest version in both ranges, if any.
std::optional<std::uint16_t> negotiate_version(VersionRange ours, VersionRange theirs) noexcept;

struct HandshakeConfig {
  NodeId self;
  AuthMode mode = AuthMode::secret;
  std::string secret;  ///< raw bytes; used in secret mode alone; wiped by the handshake that takes it
  VersionRange versions;
};

/// What both ends know when it has succeeded.
struct HandshakeResult {
  NodeId peer;
  std::uint16_t version = 0;
  SessionKey key{};  ///< frames are authenticated and data keys derived under it
  SessionTag session{};
};

/// Decides from the first kHelloSize bytes of an accepted connection what it wants to be; fewer bytes (the
/// connection ended or stayed silent) are always an error. Errors: protocol (with what was seen instead: "an
/// HTTP request", "a TLS client hello", "unknown bytes"); version_mismatch is decided later.
enum class HelloPurpose : std::uint8_t { control = 1, data = 2 };
Result<HelloPurpose> peek_purpose(std::string_view hello);

/// What bytes that are not stagewire's seem to be, for error texts: "an HTTP response", "an SSH server",
/// "nothing", "unknown bytes (01 02 …)".
std::string describe_foreign_bytes(std::string_view bytes);

/// Takes a secret's 32 random bytes out of memory. For copies of a SessionKey that are no longer needed.
void wipe(SessionKey& key) noexcept;

/// The end that dialled.
class InitiatorHandshake {
 public:
  explicit InitiatorHandshake(HandshakeConfig config);
  ~InitiatorHandshake();
  InitiatorHandshake(InitiatorHandshake&& other) noexcept;
  InitiatorHandshake& operator=(InitiatorHandshake&& other) noexcept;
  InitiatorHandshake(const InitiatorHandshake&) = delete;
  InitiatorHandshake& operator=(const InitiatorHandshake&) = delete;

  /// The bytes to send first. The same bytes each time.
  std::string hello() const;
  /// Takes the responder's kHelloSize + kProofSize bytes, once; gives the proof to send. Errors: protocol,
  /// version_mismatch, auth_failed (also for an auth mode that differs and for a responder that is this node
  /// itself), config (no usable secret). After auth_failed, `rejection()` may be sent before closing.
  Result<std::string> on_reply(std::string_view reply);
  /// Valid after on_reply succeeded.
  const HandshakeResult& result() const noexcept { return result_; }
  /// kProofSize bytes that no proof equals: tells the responder at once that its own proof was refused, so
  /// that it can name the cause instead of a closed connection.
  static std::string rejection() { return std::string(kProofSize, '\0'); }

 private:
  struct Secrets;
  std::unique_ptr<Secrets> secrets_;  // wiped when it goes; null once on_reply has run
  HandshakeConfig config_;
  std::string hello_;
  HandshakeResult result_;
};

/// The end that accepted.
class ResponderHandshake {
 public:
  explicit ResponderHandshake(HandshakeConfig config);
  ~ResponderHandshake();
  ResponderHandshake(ResponderHandshake&& other) noexcept;
  ResponderHandshake& operator=(ResponderHandshake&& other) noexcept;
  ResponderHandshake(const ResponderHandshake&) = delete;
  ResponderHandshake& operator=(const ResponderHandshake&) = delete;

  /// Takes the initiator's hello, once; gives the reply to send. Errors as above. On version_mismatch, on an
  /// auth mode that differs and for an initiator that is this node itself, `refusal` is a kHelloSize +
  /// kProofSize reply that tells the initiator why, to be sent before closing; else it is empty.
  ///
  /// The reply proves knowledge of the secret to an initiator that has proven nothing yet. That gives it
  /// nothing to use: the proof is a MAC over a fresh key exchange and both nonces, good for this connection
  /// alone, and searching the secret behind it means trying 2^256 keys. For this reason, secrets must be
  /// random bytes (parse_secret), never passwords.
  Result<std::string> on_hello(std::string_view hello, std::string& refusal);
  /// Takes the initiator's kProofSize bytes, once. Errors: auth_failed.
  Result<HandshakeResult> on_proof(std::string_view proof);
  /// The error for a connection that closed after on_hello's reply and before a proof: nearly always an
  /// initiator that refused our proof, because its secret differs.
  Error closed_before_proof() const;

 private:
  struct Secrets;
  std::unique_ptr<Secrets> secrets_;  // wiped when it goes; null once on_proof has run
  HandshakeConfig config_;
  HandshakeResult result_;
};

/// 32 bytes derived from a session key for a purpose; both ends derive the same. Different labels or indexes
/// give independent keys.
std::array<std::byte, 32> derive_key(const SessionKey& key, std::string_view label, std::uint64_t index);

/// The opening of a data connection: single-use MAC of (session, index) under the session's key.
std::string make_data_hello(const SessionTag& session, std::uint64_t index, const SessionKey& key);
struct DataHello {
  SessionTag session{};
  std::uint64_t index = 0;
  std::array<std::byte, 32> mac{};
};
/// Errors: protocol.
Result<DataHello> parse_data_hello(std::string_view hello);
/// Constant-time check of the MAC. That an index is used once is the caller's duty.
bool verify_data_hello(const DataHello& hello, const SessionKey& key);

/// Authenticates one direction of a session's frames: ChaCha20-Poly1305 with empty plaintext over the frame
/// as associated data, with a 96-bit counter nonce, so that a frame can be neither forged, repeated, dropped
/// nor reordered. One object per direction and end, never copied: two would use the same nonces.
class FrameAuth {
 public:
  /// `initiator_to_responder` names the direction; each direction has its own derived key.
  FrameAuth(const SessionKey& key, bool initiator_to_responder);
  ~FrameAuth();
  FrameAuth(FrameAuth&& other) noexcept;
  FrameAuth& operator=(FrameAuth&& other) noexcept;
  FrameAuth(const FrameAuth&) = delete;
  FrameAuth& operator=(const FrameAuth&) = delete;

  /// Appends the tag of the next frame (header and body as encoded), which starts at `start` of `buffer` and
  /// goes to its end; what stands before it was sealed already.
  void seal(std::string& buffer, std::size_t start = 0);
  /// Checks the tag of the next frame; `frame` is header and body, `tag` the 16 bytes after it. After one
  /// failure every further check fails: the stream cannot be trusted any more.
  bool check(std::string_view frame, std::string_view tag);
  /// Makes ready what the tags of the next frames need, which then need not be waited for. To be called when
  /// nobody waits.
  void prepare();

 private:
  static constexpr std::size_t kPrepared = 4;
  /// libsodium's crypto_onetimeauth_poly1305_state with the frame's one-time key in it.
  struct alignas(16) OneTimeState {
    std::array<std::byte, 256> opaque{};
  };

  std::array<std::byte, wire::kTagSize> next_tag(std::string_view frame);
  void make_state(std::uint64_t counter);
  void wipe();

  std::array<std::byte, 32> key_{};
  std::array<OneTimeState, kPrepared> ahead_{};  // that of frame n at n modulo kPrepared
  std::uint64_t prepared_ = 0;                   // frames up to here, exclusive, have theirs
  std::uint64_t counter_ = 0;
  bool broken_ = false;
};

/// Creates a new secret: 32 random bytes as 64 hex digits (what `stagewire keygen` prints).
std::string generate_secret();
/// Parses a configured secret: 64+ hex digits, or base64 (either alphabet), or the raw bytes of a file; space
/// and line ends around hex and base64 are ignored. Gives ≥ kMinSecretSize raw bytes. Errors: config, for
/// fewer bytes, and for what is plainly not random (a passphrase, one byte repeated): an attacker who
/// connects once could search for it at leisure.
Result<std::string> parse_secret(std::string_view text);

}  // namespace stagewire
