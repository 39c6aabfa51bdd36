// Parsing and printing of "host:port". No state; any thread.
#include "base/host_port.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

namespace stagewire {

namespace {

// The longest name that DNS can carry (RFC 1035, section 2.3.4, in its text form).
constexpr std::size_t kMaxHostLength = 253;

Error bad(std::string_view text, std::string_view what) {
  constexpr std::size_t kShown = 80;
  std::string message = "'";
  message += text.substr(0, kShown);
  message += "' is not an address: ";
  message += what;
  message += "; expected host:port or [IPv6 address]:port";
  return Error(ErrorKind::invalid_argument, std::move(message));
}

// Letters, digits and what host names, IPv4 literals and IPv6 literals with a zone contain.
bool may_be_in_host(char c, bool bracketed) noexcept {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c == '.' || c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const std::size_t colon = text.rfind(':');
  if (bracketed && text.find(']') == std::string_view::npos) return bad(text, "the bracket is not closed");
  if (colon == std::string_view::npos || text.ends_with(']')) return bad(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (bracketed) {
    if (!host.ends_with(']')) return bad(text, "the closing bracket must be followed by the port");
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos) return bad(text, "brackets are for IPv6 addresses alone");
  } else if (host.find(':') != std::string_view::npos) {
    return bad(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return bad(text, "the host is missing");
  if (host.size() > kMaxHostLength) return bad(text, "the host is too long");
  if (!std::all_of(host.begin(), host.end(), [&](char c) { return may_be_in_host(c, bracketed); })) {
    return bad(text, "the host has a character that no host has");
  }
  HostPort address;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (fault != std::errc() || end != digits.data() + digits.size()) {
    return bad(text, "the port must be a number from 0 to 65535");
  }
  address.host = host;
  return address;
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace stagewire
