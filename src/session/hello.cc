// Bytes of the hello: writing, reading, and saying in words what arrived instead of one. Stateless; any
// thread.
#include "session/hello.h"

#include <algorithm>
#include <string>

#include "session/crypto.h"

namespace stagewire {

namespace {

constexpr std::string_view kMagic = "STGW";
constexpr std::size_t kPurposeAt = 4;
constexpr std::size_t kModeAt = 5;
constexpr std::size_t kMinAt = 6;
constexpr std::size_t kMaxAt = 8;
constexpr std::size_t kRoleAt = 10;
constexpr std::size_t kReasonAt = 11;
constexpr std::size_t kChosenAt = 12;
constexpr std::size_t kZeroAt = 14;
constexpr std::size_t kNodeAt = 16;
constexpr std::size_t kNonceAt = 32;
constexpr std::size_t kKeyAt = 64;
constexpr std::size_t kTailAt = 96;

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}

std::uint16_t u16_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint16_t>(byte_at(bytes, at) | byte_at(bytes, at + 1) << 8U);
}

void put_u16(std::string& out, std::size_t at, std::uint16_t value) {
  out[at] = static_cast<char>(value & 0xFFU);
  out[at + 1] = static_cast<char>(value >> 8U);
}

template <typename Bytes>
void copy_at(std::string_view bytes, std::size_t at, Bytes& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<typename Bytes::value_type>(byte_at(bytes, at + i));
  }
}

bool all_zero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; });
}

Error bad_hello(const std::string& what) {
  return Error(ErrorKind::protocol, "the peer's hello " + what);
}

struct Signature {
  std::string_view prefix;
  std::string_view name;
};
using namespace std::string_view_literals;
constexpr Signature kForeign[] = {
    {"GET "sv, "an HTTP request"},        {"HEAD "sv, "an HTTP request"},
    {"POST "sv, "an HTTP request"},       {"PUT "sv, "an HTTP request"},
    {"DELETE "sv, "an HTTP request"},     {"OPTIONS "sv, "an HTTP request"},
    {"PATCH "sv, "an HTTP request"},      {"TRACE "sv, "an HTTP request"},
    {"CONNECT "sv, "an HTTP request"},    {"PRI * HTTP/2"sv, "an HTTP/2 request"},
    {"HTTP/"sv, "an HTTP response"},      {"SSH-"sv, "an SSH greeting"},
    {"\x16\x03"sv, "a TLS client hello"},  // handshake record of any TLS version
    {"\x15\x03"sv, "a TLS alert"},        {"\xFF\0\0\0\0\0\0\0\x01\x7F"sv, "a ZeroMQ greeting"},
    {"220 "sv, "a mail or FTP greeting"},
};

}  // namespace

std::string_view to_string(AuthMode mode) noexcept {
  switch (mode) {
    case AuthMode::secret:
      return "secret";
    case AuthMode::user:
      return "user";
    case AuthMode::insecure:
      return "insecure";
  }
  return "unknown";
}

std::optional<std::uint16_t> negotiate_version(VersionRange ours, VersionRange theirs) noexcept {
  const std::uint16_t highest = std::min(ours.max, theirs.max);
  const std::uint16_t lowest = std::max(ours.min, theirs.min);
  if (highest < lowest) return std::nullopt;
  return highest;
}

std::string describe_foreign_bytes(std::string_view bytes) {
  if (bytes.empty()) return "nothing";
  for (const Signature& signature : kForeign) {
    if (bytes.substr(0, signature.prefix.size()) == signature.prefix) return std::string(signature.name);
  }
  if (all_zero(bytes)) return std::to_string(bytes.size()) + " zero bytes";
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "unknown bytes (";
  const std::size_t shown = std::min<std::size_t>(bytes.size(), 8);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) out += ' ';
    out += digits[byte_at(bytes, i) >> 4U];
    out += digits[byte_at(bytes, i) & 0xFU];
  }
  return out + (bytes.size() > shown ? " …)" : ")");
}

Result<HelloPurpose> peek_purpose(std::string_view hello) {
  const std::string_view start = hello.substr(0, kMagic.size());
  if (hello.empty() || start != kMagic.substr(0, start.size())) {
    return Error(ErrorKind::protocol, "the peer sent " + describe_foreign_bytes(hello) +
                                          "; expected a stagewire hello. Check that the address and port "
                                          "belong to a stagewire node");
  }
  if (hello.size() < kHelloSize) {
    return Error(ErrorKind::protocol, "the peer sent " + std::to_string(hello.size()) + " of the " +
                                          std::to_string(kHelloSize) + " bytes of a hello");
  }
  const std::uint8_t purpose = byte_at(hello, kPurposeAt);
  if (purpose != static_cast<std::uint8_t>(HelloPurpose::control) &&
      purpose != static_cast<std::uint8_t>(HelloPurpose::data)) {
    return bad_hello("has purpose " + std::to_string(purpose) + "; expected 1 (control) or 2 (data)");
  }
  return static_cast<HelloPurpose>(purpose);
}

std::string write_hello(const Hello& hello) {
  std::string out(kHelloSize, '\0');
  out.replace(0, kMagic.size(), kMagic);
  out[kPurposeAt] = static_cast<char>(HelloPurpose::control);
  out[kModeAt] = static_cast<char>(hello.mode);
  put_u16(out, kMinAt, hello.versions.min);
  put_u16(out, kMaxAt, hello.versions.max);
  out[kRoleAt] = static_cast<char>(hello.role);
  out[kReasonAt] = static_cast<char>(hello.reason);
  put_u16(out, kChosenAt, hello.chosen);
  std::transform(hello.node.bytes.begin(), hello.node.bytes.end(), out.begin() + kNodeAt,
                 [](std::uint8_t b) { return static_cast<char>(b); });
  out.replace(kNonceAt, hello.nonce.size(), crypto::view(hello.nonce));
  out.replace(kKeyAt, hello.public_key.size(), crypto::view(hello.public_key));
  return out;
}

Result<VersionRange> read_hello_versions(std::string_view bytes) {
  STAGEWIRE_ASSIGN(const HelloPurpose purpose, peek_purpose(bytes));
  if (bytes.size() != kHelloSize) {
    return bad_hello("has " + std::to_string(bytes.size()) + " bytes; expected " +
                     std::to_string(kHelloSize));
  }
  if (purpose != HelloPurpose::control) return bad_hello("opens a data connection; expected a control one");
  const VersionRange versions{u16_at(bytes, kMinAt), u16_at(bytes, kMaxAt)};
  if (versions.min == 0 || versions.min > versions.max) {
    return bad_hello("offers versions " + std::to_string(versions.min) + " to " +
                     std::to_string(versions.max) + "; expected a range that starts at 1 or above");
  }
  return versions;
}

Result<Hello> read_hello(std::string_view bytes) {
  Hello hello;
  STAGEWIRE_ASSIGN(hello.versions, read_hello_versions(bytes));
  const std::uint8_t mode = byte_at(bytes, kModeAt);
  if (mode < static_cast<std::uint8_t>(AuthMode::secret) ||
      mode > static_cast<std::uint8_t>(AuthMode::insecure)) {
    return bad_hello("has auth mode " + std::to_string(mode) + "; expected 1 to 3");
  }
  hello.mode = static_cast<AuthMode>(mode);
  const std::uint8_t role = byte_at(bytes, kRoleAt);
  if (role < static_cast<std::uint8_t>(HelloRole::initiator) ||
      role > static_cast<std::uint8_t>(HelloRole::refusal)) {
    return bad_hello("has role " + std::to_string(role) + "; expected 1 to 3");
  }
  hello.role = static_cast<HelloRole>(role);
  const std::uint8_t reason = byte_at(bytes, kReasonAt);
  if (reason > static_cast<std::uint8_t>(RefusalReason::self) ||
      (reason != 0) != (hello.role == HelloRole::refusal)) {
    return bad_hello("has reason " + std::to_string(reason) + " with role " + std::to_string(role));
  }
  hello.reason = static_cast<RefusalReason>(reason);
  hello.chosen = u16_at(bytes, kChosenAt);
  if (!all_zero(bytes.substr(kZeroAt, kNodeAt - kZeroAt)) || !all_zero(bytes.substr(kTailAt))) {
    return bad_hello("has reserved bytes that are not zero");
  }
  copy_at(bytes, kNodeAt, hello.node.bytes);
  copy_at(bytes, kNonceAt, hello.nonce);
  copy_at(bytes, kKeyAt, hello.public_key);
  return hello;
}

}  // namespace stagewire
