// Keys derived from the session key, and what is authenticated under them: frames and the openings of data
// connections. FrameAuth belongs to the session whose stream it guards; the rest is stateless.
#include <algorithm>
#include <sodium.h>
#include <span>
#include <string>
#include <utility>

#include "session/crypto.h"
#include "session/handshake.h"

namespace stagewire {

namespace {

constexpr std::size_t kSessionAt = 16;
constexpr std::size_t kIndexAt = 32;
constexpr std::size_t kMacAt = 40;
constexpr std::size_t kMacEnd = 72;
constexpr std::string_view kMagic = "STGW";

std::string little_endian(std::uint64_t value) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(value >> (8 * i) & 0xFFU);
  return out;
}

crypto::Key data_mac(const SessionTag& session, std::uint64_t index, const SessionKey& key) {
  crypto::Key mac_key = derive_key(key, "stagewire data hello", index);
  const crypto::Key mac = crypto::hash(mac_key, {crypto::view(session), little_endian(index)});
  crypto::wipe(mac_key);
  return mac;
}

using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

crypto_onetimeauth_poly1305_state* sodium_state(std::span<std::byte> opaque) {
  return reinterpret_cast<crypto_onetimeauth_poly1305_state*>(opaque.data());
}

/// The counter in the low 8 of the 12 bytes, little-endian. It cannot wrap: 2^64 frames take centuries.
Nonce nonce_of(std::uint64_t counter) {
  Nonce nonce{};
  for (std::size_t i = 0; i < 8; ++i) nonce[i] = static_cast<unsigned char>(counter >> (8 * i) & 0xFFU);
  return nonce;
}

}  // namespace

std::array<std::byte, 32> derive_key(const SessionKey& key, std::string_view label, std::uint64_t index) {
  return crypto::hash(key, {"stagewire derived key", label, little_endian(index)});
}

void wipe(SessionKey& key) noexcept {
  crypto::wipe(key);
}

std::string make_data_hello(const SessionTag& session, std::uint64_t index, const SessionKey& key) {
  std::string out(kHelloSize, '\0');
  out.replace(0, kMagic.size(), kMagic);
  out[4] = static_cast<char>(HelloPurpose::data);
  out.replace(kSessionAt, session.size(), crypto::view(session));
  out.replace(kIndexAt, 8, little_endian(index));
  const crypto::Key mac = data_mac(session, index, key);
  out.replace(kMacAt, mac.size(), crypto::view(mac));
  return out;
}

Result<DataHello> parse_data_hello(std::string_view hello) {
  const Result<HelloPurpose> purpose = peek_purpose(hello);
  if (!purpose) return purpose.error();
  if (*purpose != HelloPurpose::data) {
    return Error(ErrorKind::protocol, "the peer opened a control connection; expected a data connection");
  }
  const auto zero = [](char c) { return c == '\0'; };
  if (hello.size() != kHelloSize || !std::all_of(hello.begin() + 5, hello.begin() + kSessionAt, zero) ||
      !std::all_of(hello.begin() + kMacEnd, hello.end(), zero)) {
    return Error(
        ErrorKind::protocol,
        "the opening of a data connection has reserved bytes that are not zero; the peer's version of "
        "stagewire may be newer than this one");
  }
  DataHello out;
  const auto bytes = [&](std::size_t at, std::span<std::byte> to) {
    std::transform(hello.begin() + static_cast<std::ptrdiff_t>(at),
                   hello.begin() + static_cast<std::ptrdiff_t>(at + to.size()), to.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
  };
  bytes(kSessionAt, out.session);
  bytes(kMacAt, out.mac);
  for (std::size_t i = 0; i < 8; ++i) {
    out.index |= static_cast<std::uint64_t>(static_cast<unsigned char>(hello[kIndexAt + i])) << (8 * i);
  }
  return out;
}

bool verify_data_hello(const DataHello& hello, const SessionKey& key) {
  const crypto::Key mac = data_mac(hello.session, hello.index, key);
  return crypto::equal(crypto::view(mac), crypto::view(hello.mac));
}

FrameAuth::FrameAuth(const SessionKey& key, bool initiator_to_responder)
    : key_(derive_key(key, "stagewire frames", initiator_to_responder ? 0 : 1)) {}

FrameAuth::~FrameAuth() {
  wipe();
}

FrameAuth::FrameAuth(FrameAuth&& other) noexcept
    : key_(other.key_), counter_(other.counter_), broken_(std::exchange(other.broken_, true)) {
  other.wipe();
}

FrameAuth& FrameAuth::operator=(FrameAuth&& other) noexcept {
  if (this != &other) {
    wipe();
    key_ = other.key_;
    counter_ = other.counter_;
    prepared_ = 0;
    broken_ = std::exchange(other.broken_, true);
    other.wipe();
  }
  return *this;
}

void FrameAuth::wipe() {
  crypto::wipe(key_);
  for (OneTimeState& state : ahead_) crypto::wipe(state.opaque);
}

void FrameAuth::make_state(std::uint64_t counter) {
  const Nonce nonce = nonce_of(counter);
  std::array<unsigned char, crypto_onetimeauth_poly1305_KEYBYTES> one_time{};
  crypto_stream_chacha20_ietf(one_time.data(), one_time.size(), nonce.data(),
                              reinterpret_cast<const unsigned char*>(key_.data()));
  crypto_onetimeauth_poly1305_init(sodium_state(ahead_[counter % kPrepared].opaque), one_time.data());
  crypto::wipe(std::as_writable_bytes(std::span(one_time)));
}

void FrameAuth::prepare() {
  for (prepared_ = std::max(prepared_, counter_); prepared_ < counter_ + kPrepared; ++prepared_)
    make_state(prepared_);
}

// The tag that crypto_aead_chacha20poly1305_ietf_encrypt_detached() gives for an empty text, by the steps of
// RFC 8439, section 2.8: the first of them, the one-time key, does not depend on the frame and can be taken
// ahead of it.
std::array<std::byte, wire::kTagSize> FrameAuth::next_tag(std::string_view frame) {
  static_assert(crypto_onetimeauth_poly1305_BYTES == wire::kTagSize &&
                sizeof(crypto_onetimeauth_poly1305_state) == sizeof(OneTimeState) &&
                alignof(crypto_onetimeauth_poly1305_state) <= alignof(OneTimeState));
  constexpr std::size_t kBlock = 16;
  const std::uint64_t counter = counter_++;
  if (counter >= prepared_) make_state(counter);
  const std::span<std::byte> opaque = ahead_[counter % kPrepared].opaque;
  auto* state = sodium_state(opaque);

  // What Poly1305 runs over: the frame, zeros up to a whole block, the lengths of frame and text.
  const std::size_t whole = frame.size() / kBlock * kBlock;
  std::array<unsigned char, 2 * kBlock> tail{};
  std::copy(frame.begin() + static_cast<std::ptrdiff_t>(whole), frame.end(), tail.begin());
  const std::size_t lengths = frame.size() == whole ? 0 : kBlock;
  const std::uint64_t size = frame.size();
  for (std::size_t i = 0; i < sizeof(size); ++i)
    tail[lengths + i] = static_cast<unsigned char>(size >> (8 * i) & 0xFFU);

  std::array<std::byte, wire::kTagSize> tag{};
  crypto_onetimeauth_poly1305_update(state, reinterpret_cast<const unsigned char*>(frame.data()), whole);
  crypto_onetimeauth_poly1305_update(state, tail.data(), lengths + kBlock);
  crypto_onetimeauth_poly1305_final(state, reinterpret_cast<unsigned char*>(tag.data()));
  crypto::wipe(opaque);
  return tag;
}

void FrameAuth::seal(std::string& buffer, std::size_t start) {
  buffer += crypto::view(next_tag(std::string_view(buffer).substr(start)));
}

bool FrameAuth::check(std::string_view frame, std::string_view tag) {
  if (broken_ || tag.size() != wire::kTagSize || !crypto::equal(crypto::view(next_tag(frame)), tag)) {
    broken_ = true;
    return false;
  }
  return true;
}

}  // namespace stagewire
