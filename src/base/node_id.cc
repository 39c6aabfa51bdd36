// NodeId's text forms and its random source. No state; any thread.
#include <cstdlib>
#include <sys/random.h>

#include <stagewire/base/node_id.h>

namespace stagewire {

namespace {
int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

NodeId NodeId::random() {
  NodeId id;
  // 16 bytes never block or fall short once the kernel's generator is seeded (getrandom(2)); an id that is
  // not random would break the protocol's idea of a restart, so there is no fallback.
  if (::getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size())) std::abort();
  return id;
}

Result<NodeId> NodeId::parse(std::string_view hex) {
  NodeId id;
  if (hex.size() != 2 * id.bytes.size()) {
    return Error(ErrorKind::invalid_argument,
                 "a node id is 32 hex digits; got " + std::to_string(hex.size()) + " characters");
  }
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0)
      return Error(ErrorKind::invalid_argument, "a node id is 32 hex digits; got another character");
    id.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return id;
}

std::string NodeId::hex() const {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace stagewire
