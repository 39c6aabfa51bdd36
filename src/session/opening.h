// Opening: one connection attempt, dialled or accepted, up to mutual authentication: fixed-size reads, one
// deadline, the handshake of handshake.h. Ends in exactly one callback, or in none if it is destroyed first.
// Loop thread only.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <stagewire/base/deadline.h>
#include <stagewire/base/result.h>

#include "base/event_loop.h"
#include "base/fd.h"
#include "session/address.h"
#include "session/handshake.h"

namespace stagewire {

/// An authenticated stream, ready for frames.
struct OpenedConnection {
  Fd socket;
  HandshakeResult auth;
  AuthMode mode = AuthMode::secret;
  bool unix_socket = false;
  bool initiator = false;
  /// CLOCK_BOOTTIME before this side sent anything: the peer has heard from us since then.
  std::chrono::nanoseconds started{0};
};

/// Who this node is and how it trusts; the mode is chosen per socket kind.
struct OpeningConfig {
  NodeId self;
  std::string secret;     ///< raw bytes, or empty
  bool insecure = false;  ///< TCP without a secret was asked for

  /// The handshake's view for a socket of this kind. Errors: auth_failed (TCP without secret and not
  /// insecure).
  Result<HandshakeConfig> handshake(bool unix_socket) const;
};

class Opening {
 public:
  using Opened = UniqueFunction<void(Result<OpenedConnection>)>;
  using DataOpened = UniqueFunction<void(Fd socket, DataHello hello)>;

  virtual ~Opening() = default;

  /// Connects to a Unix or numeric TCP address and authenticates. Errors: unreachable, auth_failed,
  /// version_mismatch, protocol, deadline_exceeded, io.
  static std::unique_ptr<Opening> dial(EventLoop& loop, const Address& endpoint, const OpeningConfig& config,
                                       Deadline deadline, Opened opened);

  /// Authenticates an accepted socket. A data connection ends in `data` instead, its MAC not checked yet.
  static std::unique_ptr<Opening> accept(EventLoop& loop, Fd socket, bool unix_socket,
                                         const OpeningConfig& config, Deadline deadline, Opened opened,
                                         DataOpened data);
};

}  // namespace stagewire
