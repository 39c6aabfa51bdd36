// Error's text form and the abort of a misused Result. No state; any thread.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <system_error>

#include <stagewire/base/error.h>
#include <stagewire/base/result.h>

namespace stagewire {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::config:
      return "config";
    case ErrorKind::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorKind::cancelled:
      return "cancelled";
    case ErrorKind::replaced:
      return "replaced";
    case ErrorKind::expired:
      return "expired";
    case ErrorKind::consumed:
      return "consumed";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::peer_restarted:
      return "peer_restarted";
    case ErrorKind::peer_lost:
      return "peer_lost";
    case ErrorKind::lease_lost:
      return "lease_lost";
    case ErrorKind::unreachable:
      return "unreachable";
    case ErrorKind::auth_failed:
      return "auth_failed";
    case ErrorKind::protocol:
      return "protocol";
    case ErrorKind::version_mismatch:
      return "version_mismatch";
    case ErrorKind::pool_exhausted:
      return "pool_exhausted";
    case ErrorKind::too_large:
      return "too_large";
    case ErrorKind::destination_held:
      return "destination_held";
    case ErrorKind::not_viable:
      return "not_viable";
    case ErrorKind::busy:
      return "busy";
    case ErrorKind::closed:
      return "closed";
    case ErrorKind::forked:
      return "forked";
    case ErrorKind::interrupted:
      return "interrupted";
    case ErrorKind::io:
      return "io";
    case ErrorKind::internal:
      return "internal";
  }
  return "unknown";
}

Error Error::from_errno(int error_number, std::string_view what) {
  std::string text(what);
  text += ": ";
  std::array<char, 128> buffer{};
  text += ::strerror_r(error_number, buffer.data(), buffer.size());  // GNU's, which gives the text
  return Error(ErrorKind::io, std::move(text));
}

struct Error::Details {
  std::string message;
  std::string operation;
  std::string key;
  std::string peer;
  std::string transport;
  std::shared_ptr<const Error> cause;
};

Error::Error(ErrorKind kind, std::string message) : kind_(kind), details_(std::make_unique<Details>()) {
  details_->message = std::move(message);
}
Error::~Error() = default;
Error::Error(const Error& other) : kind_(other.kind_), details_(std::make_unique<Details>(other.details())) {}
Error& Error::operator=(const Error& other) {
  if (this != &other) *this = Error(other);
  return *this;
}
Error::Error(Error&& other) noexcept = default;
Error& Error::operator=(Error&& other) noexcept = default;

const Error::Details& Error::details() const noexcept {
  static const Details kNone;
  return details_ ? *details_ : kNone;
}
Error::Details& Error::own_details() {
  if (!details_) details_ = std::make_unique<Details>();
  return *details_;
}

const std::string& Error::message() const noexcept {
  return details().message;
}
const std::string& Error::operation() const noexcept {
  return details().operation;
}
const std::string& Error::key() const noexcept {
  return details().key;
}
const std::string& Error::peer() const noexcept {
  return details().peer;
}
const std::string& Error::transport() const noexcept {
  return details().transport;
}
const Error* Error::cause() const noexcept {
  return details().cause.get();
}

namespace {
void keep_first(std::string& field, std::string_view value) {
  if (field.empty()) field = value;
}
}  // namespace

Error& Error::with_operation(std::string_view operation) & {
  keep_first(own_details().operation, operation);
  return *this;
}
Error& Error::with_key(std::string_view key) & {
  keep_first(own_details().key, key);
  return *this;
}
Error& Error::with_peer(std::string_view peer) & {
  keep_first(own_details().peer, peer);
  return *this;
}
Error& Error::with_transport(std::string_view transport) & {
  keep_first(own_details().transport, transport);
  return *this;
}
Error& Error::with_cause(Error cause) & {
  Details& details = own_details();
  if (!details.cause) details.cause = std::make_shared<const Error>(std::move(cause));
  return *this;
}

std::string Error::to_string() const {
  std::string text;
  const auto add_field = [&text](std::string_view name, const std::string& value) {
    if (value.empty()) return;
    if (!text.empty()) text += ' ';
    if (!name.empty()) (text += name) += '=';
    text += value;
  };
  const Details& known = details();
  add_field("", known.operation);
  add_field("key", known.key);
  add_field("peer", known.peer);
  add_field("transport", known.transport);
  if (!text.empty()) text += ": ";
  text += stagewire::to_string(kind_);
  text += ": ";
  text += known.message;
  if (known.cause) {
    text += " (caused by ";
    text += known.cause->to_string();
    text += ')';
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << error.to_string();
}

namespace detail {
void bad_result_access(const Error* error) noexcept {
  if (error != nullptr) {
    std::fprintf(stderr, "stagewire: value() of a failed Result: %s\n", error->to_string().c_str());
  } else {
    std::fputs("stagewire: error() of a successful Result\n", stderr);
  }
  std::abort();
}
}  // namespace detail

}  // namespace stagewire
