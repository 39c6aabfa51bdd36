// Where a peer's data connections are dialled: the endpoints in its hello, combined with the address it was
// seen at; and the making of sockets. Stateless; nothing here blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <stagewire/base/result.h>

#include "base/fd.h"
#include "transport/tcp/tcp_options.h"

namespace stagewire {

/// A listening address as a node announces it.
struct TcpEndpoint {
  std::string ip;  ///< numeric; empty for a wildcard: "the address at which you reached me"
  std::uint16_t port = 0;
  friend bool operator==(const TcpEndpoint&, const TcpEndpoint&) = default;
};

/// u8 version 1, u8 count; per endpoint: u16 port, u8 length, text of the address.
std::string encode_endpoints(const std::vector<TcpEndpoint>& endpoints);
/// Errors: protocol.
Result<std::vector<TcpEndpoint>> decode_endpoints(std::string_view hello);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text;  ///< "127.0.0.1:7000", for errors
};

/// The addresses to try, best first: `peer_ip` where the peer listens on it or on a wildcard, then its
/// others. Loopback addresses are kept only if the peer is on this host (`same_host`, or seen at a loopback
/// address); they would lead elsewhere otherwise.
std::vector<SocketAddress> dial_order(const std::vector<TcpEndpoint>& endpoints, const std::string& peer_ip,
                                      bool same_host);

/// A non-blocking stream socket for `address`. Errors: io (naming the descriptor limit where that is the
/// cause).
Result<Fd> make_socket(const SocketAddress& address, const TcpOptions& options);

/// Whether this kernel offers what the options name (a congestion control). Errors: config, io.
Status check_offered(const TcpOptions& options);

/// TCP_NODELAY, buffers, congestion control and dead-peer detection on a data connection of either side.
/// Errors: config (an unknown congestion control), io.
Status configure_socket(int fd, const TcpOptions& options);

/// Whether a send or receive that failed with `error_number` just has to be tried again later.
bool would_block(int error_number) noexcept;

}  // namespace stagewire
