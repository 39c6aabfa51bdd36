// Both ends of the handshake. The protocol in words, with T the hash of both hellos as sent:
//
//   master           = BLAKE2b(key: secret, shared X25519 point, T)     (an all-zero point is refused)
//   responder's proof = BLAKE2b(key: derived from master for the responder's proof, T); the initiator's alike
//   session key, tag = derived from master
//
// The hellos hold role, versions offered and chosen, auth mode, node ids, nonces and public keys, so T binds
// all of them: whoever changes one byte on the way makes both proofs fail. Without a secret (modes user and
// insecure) the same computation runs under an empty secret and protects against accidents alone.
#include <algorithm>
#include <sodium.h>
#include <string>
#include <utility>

#include "session/crypto.h"
#include "session/hello.h"

namespace stagewire {

namespace {

using crypto::Key;

/// Bytes that are wiped when they go.
struct SecretBytes {
  Key bytes{};
  SecretBytes() = default;
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes() { crypto::wipe(bytes); }
};

/// The configured secret as a 32-byte key; what is not configured is all zeros.
void take_secret(HandshakeConfig& config, SecretBytes& key) {
  if (config.mode == AuthMode::secret && config.secret.size() >= kMinSecretSize) {
    key.bytes = crypto::hash({}, {"stagewire secret", config.secret});
  }
  sodium_memzero(config.secret.data(), config.secret.size());
}

/// Whether the configuration can be used at all. Errors: config.
Status check_config(const HandshakeConfig& config) {
  if (config.mode == AuthMode::secret && config.secret.size() < kMinSecretSize) {
    return Error(ErrorKind::config, "the secret has " + std::to_string(config.secret.size()) +
                                        " bytes; expected at least " + std::to_string(kMinSecretSize) +
                                        " (`stagewire keygen` makes one)");
  }
  return {};
}

/// An ephemeral key pair and a nonce, into `hello` and `private_key`.
void make_ephemeral(Hello& hello, SecretBytes& private_key) {
  crypto::fill_random(private_key.bytes);
  crypto::fill_random(hello.nonce);
  crypto_scalarmult_base(reinterpret_cast<unsigned char*>(hello.public_key.data()),
                         reinterpret_cast<const unsigned char*>(private_key.bytes.data()));
}

/// What follows from the key exchange, for both ends.
struct Outcome {
  SecretBytes initiator_proof;
  SecretBytes responder_proof;
  SecretBytes session_key;
  SessionTag session{};
};

/// Errors: auth_failed for a public key of low order, which would make the shared point known to anybody.
Status agree(const SecretBytes& secret, const SecretBytes& private_key, const Key& their_key,
             std::string_view initiator_hello, std::string_view responder_hello, Outcome& out) {
  SecretBytes point;
  if (crypto_scalarmult(reinterpret_cast<unsigned char*>(point.bytes.data()),
                        reinterpret_cast<const unsigned char*>(private_key.bytes.data()),
                        reinterpret_cast<const unsigned char*>(their_key.data())) != 0) {
    return Error(ErrorKind::auth_failed,
                 "the peer's public key is one that gives no secret; the peer is not a "
                 "genuine stagewire node");
  }
  const Key transcript = crypto::hash({}, {"stagewire transcript", initiator_hello, responder_hello});
  SecretBytes master;
  master.bytes =
      crypto::hash(secret.bytes, {"stagewire master", crypto::view(point.bytes), crypto::view(transcript)});
  const auto prove = [&](std::string_view label, SecretBytes& proof) {
    SecretBytes mac_key;
    mac_key.bytes = derive_key(master.bytes, label, 0);
    proof.bytes = crypto::hash(mac_key.bytes, {crypto::view(transcript)});
  };
  prove("stagewire initiator proof", out.initiator_proof);
  prove("stagewire responder proof", out.responder_proof);
  out.session_key.bytes = derive_key(master.bytes, "stagewire session key", 0);
  const Key tag = derive_key(master.bytes, "stagewire session tag", 0);
  std::copy_n(tag.begin(), out.session.size(), out.session.begin());
  return {};
}

std::string words(VersionRange range) {
  if (range.min == range.max) return std::to_string(range.min);
  return std::to_string(range.min) + " to " + std::to_string(range.max);
}

Error version_mismatch(VersionRange ours, VersionRange theirs) {
  return Error(ErrorKind::version_mismatch, "this node speaks protocol version " + words(ours) +
                                                ", the peer " + words(theirs) +
                                                "; install stagewire releases that share a version");
}

Error mode_mismatch(AuthMode ours, AuthMode theirs) {
  return Error(ErrorKind::auth_failed,
               "this node uses auth mode '" + std::string(to_string(ours)) +
                   "' on this connection, the peer '" + std::string(to_string(theirs)) +
                   "'; give both the same secret (`stagewire keygen` makes one), or set insecure on both");
}

Error dialled_self() {
  return Error(ErrorKind::auth_failed,
               "this address is this node itself; use the address of the peer's node");
}

Error reflected() {
  return Error(
      ErrorKind::auth_failed,
      "reflected handshake: the peer sent this node's own hello back; what answers at this address is "
      "not a stagewire node");
}

/// The peer's proof is wrong.
Error wrong_proof(AuthMode mode) {
  if (mode == AuthMode::secret) {
    return Error(
        ErrorKind::auth_failed,
        "the peer does not know this node's secret; configure the same secret on both nodes (`stagewire "
        "keygen` makes one)");
  }
  return Error(ErrorKind::auth_failed,
               "the peer's proof does not fit the handshake; something between the nodes changes bytes");
}

Error misused(std::string_view what) {
  return Error(ErrorKind::internal, "handshake: " + std::string(what));
}

}  // namespace

struct InitiatorHandshake::Secrets {
  Status config_status;
  SecretBytes secret;
  SecretBytes private_key;
};

InitiatorHandshake::InitiatorHandshake(HandshakeConfig config)
    : secrets_(std::make_unique<Secrets>()), config_(std::move(config)) {
  crypto::ensure_sodium();
  secrets_->config_status = check_config(config_);
  take_secret(config_, secrets_->secret);
  Hello hello;
  hello.mode = config_.mode;
  hello.versions = config_.versions;
  hello.node = config_.self;
  make_ephemeral(hello, secrets_->private_key);
  hello_ = write_hello(hello);
}

InitiatorHandshake::~InitiatorHandshake() {
  wipe(result_.key);
}
InitiatorHandshake::InitiatorHandshake(InitiatorHandshake&& other) noexcept
    : secrets_(std::move(other.secrets_)),
      config_(std::move(other.config_)),
      hello_(std::move(other.hello_)),
      result_(other.result_) {
  wipe(other.result_.key);
}
InitiatorHandshake& InitiatorHandshake::operator=(InitiatorHandshake&& other) noexcept {
  if (this != &other) {
    secrets_ = std::move(other.secrets_);
    config_ = std::move(other.config_);
    hello_ = std::move(other.hello_);
    result_ = other.result_;
    wipe(other.result_.key);
  }
  return *this;
}

std::string InitiatorHandshake::hello() const {
  return hello_;
}

Result<std::string> InitiatorHandshake::on_reply(std::string_view reply) {
  const std::unique_ptr<Secrets> secrets = std::move(secrets_);
  if (!secrets) return misused("on_reply was called twice");
  STAGEWIRE_TRY(secrets->config_status);
  const std::string_view their_hello = reply.substr(0, kHelloSize);
  STAGEWIRE_ASSIGN(const VersionRange their_versions, read_hello_versions(their_hello));
  if (reply.size() != kHelloSize + kProofSize) {
    return Error(ErrorKind::protocol, "the peer's reply has " + std::to_string(reply.size()) +
                                          " bytes; expected " + std::to_string(kHelloSize + kProofSize));
  }
  const std::optional<std::uint16_t> version = negotiate_version(config_.versions, their_versions);
  if (!version) return version_mismatch(config_.versions, their_versions);
  STAGEWIRE_ASSIGN(const Hello theirs, read_hello(their_hello));
  STAGEWIRE_ASSIGN(const Hello ours, read_hello(hello_));
  if (theirs.nonce == ours.nonce || theirs.public_key == ours.public_key) return reflected();
  if (theirs.node == config_.self || theirs.reason == RefusalReason::self) return dialled_self();
  if (theirs.mode != config_.mode) return mode_mismatch(config_.mode, theirs.mode);
  if (theirs.role != HelloRole::responder) {
    // A refusal for a reason that its own values do not show.
    return Error(ErrorKind::protocol, "the peer answered with role " +
                                          std::to_string(static_cast<int>(theirs.role)) + ", reason " +
                                          std::to_string(static_cast<int>(theirs.reason)) +
                                          ", although versions and auth modes fit; expected role 2");
  }
  if (theirs.chosen != *version) {
    return Error(ErrorKind::protocol, "the peer chose version " + std::to_string(theirs.chosen) +
                                          "; expected " + std::to_string(*version) +
                                          ", the highest that both speak");
  }
  Outcome outcome;
  STAGEWIRE_TRY(
      agree(secrets->secret, secrets->private_key, theirs.public_key, hello_, their_hello, outcome));
  if (!crypto::equal(crypto::view(outcome.responder_proof.bytes), reply.substr(kHelloSize))) {
    return wrong_proof(config_.mode);
  }
  result_.peer = theirs.node;
  result_.version = *version;
  result_.key = outcome.session_key.bytes;
  result_.session = outcome.session;
  return std::string(crypto::view(outcome.initiator_proof.bytes));
}

struct ResponderHandshake::Secrets {
  Status config_status;
  SecretBytes secret;
  SecretBytes expected_proof;
  bool replied = false;
  bool used = false;
};

ResponderHandshake::ResponderHandshake(HandshakeConfig config)
    : secrets_(std::make_unique<Secrets>()), config_(std::move(config)) {
  crypto::ensure_sodium();
  secrets_->config_status = check_config(config_);
  take_secret(config_, secrets_->secret);
}

ResponderHandshake::~ResponderHandshake() {
  wipe(result_.key);
}
ResponderHandshake::ResponderHandshake(ResponderHandshake&& other) noexcept
    : secrets_(std::move(other.secrets_)), config_(std::move(other.config_)), result_(other.result_) {
  wipe(other.result_.key);
}
ResponderHandshake& ResponderHandshake::operator=(ResponderHandshake&& other) noexcept {
  if (this != &other) {
    secrets_ = std::move(other.secrets_);
    config_ = std::move(other.config_);
    result_ = other.result_;
    wipe(other.result_.key);
  }
  return *this;
}

Result<std::string> ResponderHandshake::on_hello(std::string_view hello, std::string& refusal) {
  refusal.clear();
  if (!secrets_ || std::exchange(secrets_->used, true)) return misused("on_hello was called twice");
  STAGEWIRE_TRY(secrets_->config_status);

  Hello ours;
  ours.mode = config_.mode;
  ours.versions = config_.versions;
  ours.node = config_.self;
  const auto refuse = [&](RefusalReason reason, Error error) {
    ours.role = HelloRole::refusal;
    ours.reason = reason;
    refusal = write_hello(ours) + std::string(kProofSize, '\0');
    return error;
  };

  // Versions first: the rest of a hello of another version need not look like ours.
  STAGEWIRE_ASSIGN(const VersionRange their_versions, read_hello_versions(hello));
  const std::optional<std::uint16_t> version = negotiate_version(config_.versions, their_versions);
  if (!version) return refuse(RefusalReason::version, version_mismatch(config_.versions, their_versions));
  STAGEWIRE_ASSIGN(const Hello theirs, read_hello(hello));
  if (theirs.role != HelloRole::initiator || theirs.chosen != 0) {
    return Error(ErrorKind::protocol, "the peer's hello has role " +
                                          std::to_string(static_cast<int>(theirs.role)) +
                                          " and chosen version " + std::to_string(theirs.chosen) +
                                          "; expected role 1 (initiator) and none chosen");
  }
  if (theirs.node == config_.self) return refuse(RefusalReason::self, dialled_self());
  if (theirs.mode != config_.mode) {
    return refuse(RefusalReason::auth_mode, mode_mismatch(config_.mode, theirs.mode));
  }

  ours.role = HelloRole::responder;
  ours.chosen = *version;
  SecretBytes private_key;
  make_ephemeral(ours, private_key);
  const std::string our_hello = write_hello(ours);
  Outcome outcome;
  STAGEWIRE_TRY(agree(secrets_->secret, private_key, theirs.public_key, hello, our_hello, outcome));
  secrets_->expected_proof.bytes = outcome.initiator_proof.bytes;
  secrets_->replied = true;
  result_.peer = theirs.node;
  result_.version = *version;
  result_.key = outcome.session_key.bytes;
  result_.session = outcome.session;
  return our_hello + std::string(crypto::view(outcome.responder_proof.bytes));
}

Result<HandshakeResult> ResponderHandshake::on_proof(std::string_view proof) {
  const std::unique_ptr<Secrets> secrets = std::move(secrets_);
  if (!secrets || !secrets->replied) return misused("on_proof was called before on_hello or twice");
  if (!crypto::equal(crypto::view(secrets->expected_proof.bytes), proof)) return wrong_proof(config_.mode);
  return result_;
}

Error ResponderHandshake::closed_before_proof() const {
  if (config_.mode == AuthMode::secret) {
    return Error(ErrorKind::auth_failed,
                 "the peer closed the connection instead of proving that it knows this node's secret; most "
                 "likely the secrets differ: configure the same secret on both nodes");
  }
  return Error(ErrorKind::auth_failed, "the peer closed the connection in the middle of the handshake");
}

}  // namespace stagewire
