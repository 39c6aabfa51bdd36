// Address: where a node can be reached. "host:port", "[v6]:port", "unix:@abstract-name" or "unix:/path".
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <stagewire/base/result.h>

namespace stagewire {

struct Address {
  enum class Kind : std::uint8_t { tcp, unix_socket };

  Kind kind = Kind::tcp;
  std::string host;        ///< name or numeric address, without brackets; tcp alone
  std::uint16_t port = 0;  ///< tcp alone; 0 only where the kernel is to choose
  std::string path;        ///< "@name" or "/path"; unix alone

  /// Errors: invalid_argument, saying which part is wrong and what the forms are.
  static Result<Address> parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const Address&, const Address&) = default;
};

/// The abstract socket under which a node of this user that listens on `port` is found without TCP
/// (docs/protocol.md).
std::string unix_name_of_port(std::uint16_t port, const std::string& socket_dir);
/// The socket of a node by its id.
std::string unix_name_of_node(const std::string& node_hex, const std::string& socket_dir);

}  // namespace stagewire
