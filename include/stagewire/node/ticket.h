// Ticket: what a put returns and what a reader needs to claim exactly that payload. A small value that
// travels with the request, as text. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>

namespace stagewire {

/// Names a payload: a key within an edge (from stage, to stage) within a namespace.
struct Key {
  std::string name_space;  ///< per connector; "" is the default one
  std::string from_stage;
  std::string to_stage;
  std::string key;

  /// "namespace/from→to/key", for errors and logs.
  std::string to_string() const;
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Ticket {
  std::vector<std::string> addresses;  ///< where the owner listens: "host:port", "unix:@name"; tried in order
  NodeId node;                         ///< the owner; a restarted process is a different node
  Key key;
  std::uint64_t generation = 0;  ///< this publish of the key; never 0
  std::uint64_t size = 0;        ///< tensor bytes

  /// One line of printable ASCII, at most a few hundred bytes:
  /// "swt1|node|generation|size|addresses|ns|from|to|key", each field percent-encoded where needed.
  std::string to_text() const;
  /// Errors: invalid_argument, naming the field.
  static Result<Ticket> parse(std::string_view text);
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

}  // namespace stagewire
