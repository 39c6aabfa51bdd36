// Socket helpers: creating, binding, connecting and asking about stream sockets. All sockets are non-blocking
// and close-on-exec. Free functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <stagewire/base/result.h>

#include "base/fd.h"
#include "session/address.h"

namespace stagewire {

/// Resolves a TCP address to numeric ones, in the resolver's order. Blocks (worker thread only). Errors:
/// unreachable.
Result<std::vector<Address>> resolve(const Address& address);

/// Binds and listens. For port 0 the kernel chooses; `bound` gets the address with the real port. Errors: io,
/// naming the address and, for a port in use, what to do.
Result<Fd> listen_on(const Address& address, Address& bound);

/// Removes the sockets of killed nodes from a configured directory: those of ours on which nobody answers.
void remove_stale_sockets(const std::string& socket_dir);

/// Starts a non-blocking connect; completes when the socket becomes writable, then connect_error() says how.
Result<Fd> start_connect(const Address& numeric_or_unix);
/// The outcome of a connect: 0 or an errno.
int connect_error(int fd) noexcept;

/// Who is at the other end of a Unix socket (SO_PEERCRED).
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
std::optional<PeerCredentials> peer_credentials(int fd) noexcept;
/// A pidfd of the process at the other end of a Unix socket, or an empty Fd where the kernel has none to
/// give.
Fd peer_pidfd(int fd) noexcept;
/// The numeric IP of the other end of a TCP socket, or "".
std::string peer_ip(int fd);
/// TCP_NODELAY: control frames are small and wait for nobody.
void set_no_delay(int fd) noexcept;
/// True if `host` is a loopback address, "localhost" or an address of one of this host's interfaces.
bool is_local_host(const std::string& host);
/// The kernel's boot id, or "" where it cannot be read.
std::string boot_id();

}  // namespace stagewire
