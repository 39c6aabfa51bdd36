// Parsing and printing of addresses. No state.
#include "session/address.h"

#include <utility>

#include "base/host_port.h"

namespace stagewire {

namespace {
Error bad(std::string_view text, std::string_view why) {
  return Error(ErrorKind::invalid_argument,
               "address '" + std::string(text.substr(0, 300)) + "': " + std::string(why) +
                   "; expected host:port, [ipv6]:port, unix:@name or unix:/path");
}
}  // namespace

Result<Address> Address::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  // sun_path holds 108 bytes; an abstract name and a path both lose one of them.
  constexpr std::size_t kMaxPath = 107;
  Address address;
  if (text.substr(0, kUnix.size()) == kUnix) {
    address.kind = Kind::unix_socket;
    address.path = text.substr(kUnix.size());
    if (address.path.size() < 2 || (address.path[0] != '@' && address.path[0] != '/')) {
      return bad(text, "a Unix address is unix:@name or unix:/path");
    }
    if (address.path.size() > kMaxPath) return bad(text, "a Unix socket name has at most 107 bytes");
    if (address.path.find('\0') != std::string::npos) return bad(text, "it contains a NUL byte");
    return address;
  }
  Result<HostPort> parsed = parse_host_port(text);
  if (!parsed.ok())
    return Error(ErrorKind::invalid_argument, parsed.error().message() + ", unix:@name or unix:/path");
  address.host = std::move(parsed->host);
  address.port = parsed->port;
  return address;
}

std::string Address::to_string() const {
  if (kind == Kind::unix_socket) return "unix:" + path;
  return stagewire::to_string(HostPort{.host = host, .port = port});
}

std::string unix_name_of_port(std::uint16_t port, const std::string& socket_dir) {
  const std::string name = "stagewire-port-" + std::to_string(port);
  return socket_dir.empty() ? "@" + name : socket_dir + "/" + name + ".sock";
}

std::string unix_name_of_node(const std::string& node_hex, const std::string& socket_dir) {
  const std::string name = "stagewire-node-" + node_hex;
  return socket_dir.empty() ? "@" + name : socket_dir + "/" + name + ".sock";
}

}  // namespace stagewire
