// The one error type of stagewire. An Error is a value: it is copied, returned and stored, never thrown (only
// the Python binding turns it into an exception). It names what was being done, to which key, with which
// peer, over which transport, and what caused it, and prints as one line that a user can act on.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace stagewire {

/// What went wrong, as far as a program needs to know it. docs/errors.md lists each kind with what to do.
enum class ErrorKind : std::uint8_t {
  invalid_argument,   ///< the caller's argument is wrong; nothing was done
  config,             ///< a configuration value, file or variable is wrong
  deadline_exceeded,  ///< the operation's deadline passed; nothing of it goes on
  cancelled,          ///< the owner or the caller withdrew it
  replaced,           ///< a newer generation of the key was published
  expired,            ///< the payload's time to live or maximum lifetime ran out
  consumed,           ///< every owed reader (or this reader) already has this generation
  not_found,          ///< the key is not published (only where the caller asked not to wait)
  peer_restarted,     ///< the process behind the address is not the one the ticket names
  peer_lost,          ///< the peer died or the session to it was lost and not regained in time
  lease_lost,         ///< the lease ended before the read was complete; the bytes are not to be trusted
  unreachable,        ///< no connection to the address could be made
  auth_failed,       ///< the peer did not prove knowledge of the secret, or none is configured for this route
  protocol,          ///< the peer sent something that the protocol does not allow
  version_mismatch,  ///< no common protocol version
  pool_exhausted,    ///< no memory became free before the deadline; the message names the largest and oldest
                     ///< holders
  too_large,  ///< larger than a bound that waiting cannot change (pool size, header bound, destination)
  destination_held,  ///< the read could not be proven over within the abort grace; its destination stays
                     ///< quarantined
  not_viable,        ///< no transport can do this between these two places; the message lists why
  busy,              ///< a bounded table (waiting claims, sessions, views) is full
  closed,            ///< the node, connector or handle was closed
  forked,            ///< the handle belongs to the parent process of a fork
  interrupted,       ///< the wait was interrupted by a signal (Ctrl-C)
  io,                ///< the operating system refused; the message carries errno's text
  internal,          ///< a broken invariant of stagewire itself; please report
};

/// The stable snake_case name of a kind, e.g. "deadline_exceeded".
std::string_view to_string(ErrorKind kind) noexcept;

/// A typed, copyable error. Two words, so that a Result is hardly larger than its value; copying copies its
/// strings and shares its cause. Thread-compatible; a moved-from Error keeps its kind alone.
class Error {
 public:
  Error(ErrorKind kind, std::string message);
  ~Error();
  Error(const Error& other);
  Error& operator=(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(Error&& other) noexcept;

  /// An io Error whose message is `what` followed by the text of `error_number`.
  static Error from_errno(int error_number, std::string_view what);

  ErrorKind kind() const noexcept { return kind_; }
  /// What was wrong, what was expected, and what to do, without the context fields below.
  const std::string& message() const noexcept;
  const std::string& operation() const noexcept;
  const std::string& key() const noexcept;
  const std::string& peer() const noexcept;
  const std::string& transport() const noexcept;
  /// The error behind this one, or nullptr.
  const Error* cause() const noexcept;

  // Context setters; each keeps a value that is already there, so the innermost layer that knows wins.
  Error& with_operation(std::string_view operation) &;
  Error& with_key(std::string_view key) &;
  Error& with_peer(std::string_view peer) &;
  Error& with_transport(std::string_view transport) &;
  Error& with_cause(Error cause) &;
  Error&& with_operation(std::string_view v) && { return std::move(with_operation(v)); }
  Error&& with_key(std::string_view v) && { return std::move(with_key(v)); }
  Error&& with_peer(std::string_view v) && { return std::move(with_peer(v)); }
  Error&& with_transport(std::string_view v) && { return std::move(with_transport(v)); }
  Error&& with_cause(Error v) && { return std::move(with_cause(std::move(v))); }

  /// One line: "get key=… peer=… transport=…: deadline_exceeded: message (caused by …)".
  std::string to_string() const;

 private:
  struct Details;
  const Details& details() const noexcept;
  Details& own_details();

  ErrorKind kind_;
  std::unique_ptr<Details> details_;  // null when moved from
};

std::ostream& operator<<(std::ostream& out, const Error& error);

}  // namespace stagewire
