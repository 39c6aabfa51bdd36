// Addresses as people write them: "host:port" and "[v6]:port". Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <stagewire/base/result.h>

namespace stagewire {

/// A host (a name or a literal address, without brackets) and a port. Not resolved.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// Errors: invalid_argument. A literal IPv6 address must stand in brackets; the port must be given.
Result<HostPort> parse_host_port(std::string_view text);
/// The form that parse_host_port() takes.
std::string to_string(const HostPort& address);

}  // namespace stagewire
