// See verbs_wire.h.
#include "transport/verbs/verbs_wire.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "payload/utf8.h"
#include "transport/bytes.h"
#include "transport/verbs/verbs_options.h"

namespace stagewire::verbs_wire {

namespace {

constexpr std::uint8_t kVersion = 1;
enum Type : std::uint8_t { connect = 1, connected, refused, drop, keys, key, no_key, renewed };

Error bad(const std::string& what) {
  return Error(ErrorKind::protocol, "verbs message: " + what);
}

void put_port(std::string& out, const Port& port) {
  bytes::put(out, port.link_layer);
  bytes::put(out, port.mtu);
  bytes::put(out, port.lid);
  for (const std::uint8_t byte : port.gid) bytes::put(out, byte);
}

void put_queues(std::string& out, const std::vector<Queue>& queues) {
  bytes::put(out, static_cast<std::uint8_t>(queues.size()));
  for (const Queue& queue : queues) {
    bytes::put(out, queue.qpn);
    bytes::put(out, queue.psn);
  }
}

void put_error(std::string& out, ErrorKind kind, std::string_view text) {
  if (text.size() > kMaxText) {
    // Not in the middle of a character: continuation bytes are 10xxxxxx.
    std::size_t end = kMaxText;
    while (end != 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text = text.substr(0, end);
  }
  bytes::put(out, static_cast<std::uint8_t>(kind));
  bytes::put(out, static_cast<std::uint16_t>(text.size()));
  out += text;
}

/// Takes values from the front. After the first that is not there, `ok()` is false and all values are 0.
class Cursor {
 public:
  explicit Cursor(std::string_view in) : in_(in) {}
  template <typename T>
  T take() {
    if (in_.size() < sizeof(T)) {
      short_ = true;
      in_ = {};
      return 0;
    }
    const T value = bytes::get<T>(in_.data());
    in_.remove_prefix(sizeof(T));
    return value;
  }
  std::string take_text() {
    const std::size_t size = take<std::uint16_t>();
    if (size > kMaxText || size > in_.size()) {
      short_ = true;
      return {};
    }
    std::string text(in_.substr(0, size));
    in_.remove_prefix(size);
    // It goes into logs and errors as it is.
    const bool plain = std::none_of(text.begin(), text.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
    if (!plain || !is_utf8(text)) short_ = true;
    return text;
  }
  /// Everything was there, and nothing is left.
  bool complete() const noexcept { return !short_ && in_.empty(); }
  std::size_t left() const noexcept { return in_.size(); }

 private:
  std::string_view in_;
  bool short_ = false;
};

Result<Port> take_port(Cursor& in) {
  Port port;
  port.link_layer = in.take<std::uint8_t>();
  port.mtu = in.take<std::uint8_t>();
  port.lid = in.take<std::uint16_t>();
  for (std::uint8_t& byte : port.gid) byte = in.take<std::uint8_t>();
  if (port.link_layer != 1 && port.link_layer != 2) {
    return bad("link layer " + std::to_string(port.link_layer) + "; expected 1 (InfiniBand) or 2 (Ethernet)");
  }
  if (port.mtu < 1 || port.mtu > 5) {
    return bad("MTU code " + std::to_string(port.mtu) + "; expected 1 to 5");
  }
  return port;
}

Result<std::vector<Queue>> take_queues(Cursor& in) {
  const std::size_t count = in.take<std::uint8_t>();
  if (count == 0 || count > kMaxVerbsQueuesPerPeer) {
    return bad(std::to_string(count) + " queue pairs; expected 1 to " +
               std::to_string(kMaxVerbsQueuesPerPeer));
  }
  std::vector<Queue> queues(count);
  for (Queue& queue : queues) {
    queue.qpn = in.take<std::uint32_t>();
    queue.psn = in.take<std::uint32_t>();
    if (queue.qpn > 0xFFFFFFU || queue.psn > 0xFFFFFFU) {
      return bad("a queue pair or packet number has more than 24 bits");
    }
  }
  return queues;
}

Result<ErrorKind> take_kind(Cursor& in) {
  const std::uint8_t kind = in.take<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(ErrorKind::internal)) {
    return bad("unknown error kind " + std::to_string(kind));
  }
  return static_cast<ErrorKind>(kind);
}

template <typename M>
Result<Message> take_connection(Cursor& in) {
  M message;
  message.request = in.take<std::uint64_t>();
  STAGEWIRE_ASSIGN(message.port, take_port(in));
  message.depth = in.take<std::uint8_t>();
  STAGEWIRE_ASSIGN(message.queues, take_queues(in));
  return Message(std::move(message));
}

Result<Message> take_keys(Cursor& in) {
  Keys message;
  const std::size_t count = in.take<std::uint16_t>();
  if (count == 0 || count > kMaxVerbsMemories) {
    return bad(std::to_string(count) + " memories; expected 1 to " + std::to_string(kMaxVerbsMemories));
  }
  message.memories.resize(count);
  for (std::uint32_t& memory : message.memories) memory = in.take<std::uint32_t>();
  return Message(std::move(message));
}

Result<Message> take_key(Cursor& in) {
  Key message;
  message.memory = in.take<std::uint32_t>();
  message.address = in.take<std::uint64_t>();
  message.size = in.take<std::uint64_t>();
  message.piece = in.take<std::uint64_t>();
  const std::size_t count = in.take<std::uint16_t>();
  if (count == 0 || count > kMaxVerbsPieces || count * sizeof(std::uint32_t) > in.left()) {
    return bad(std::to_string(count) + " keys; expected 1 to " + std::to_string(kMaxVerbsPieces));
  }
  if (message.size == 0 || message.size > std::numeric_limits<std::uint64_t>::max() - message.address) {
    return bad("a memory of " + std::to_string(message.size) + " bytes that ends beyond the address space");
  }
  if (message.piece == 0 || (message.size - 1) / message.piece + 1 != count) {
    return bad(std::to_string(count) + " keys of " + std::to_string(message.piece) +
               " bytes do not make up a memory of " + std::to_string(message.size) + " bytes");
  }
  message.rkeys.resize(count);
  for (std::uint32_t& rkey : message.rkeys) rkey = in.take<std::uint32_t>();
  return Message(std::move(message));
}

Result<Message> take_body(Type type, Cursor& in) {
  switch (type) {
    case Type::connect:
      return take_connection<Connect>(in);
    case Type::connected:
      return take_connection<Connected>(in);
    case Type::refused: {
      Refused message;
      message.request = in.take<std::uint64_t>();
      STAGEWIRE_ASSIGN(message.kind, take_kind(in));
      message.text = in.take_text();
      return Message(std::move(message));
    }
    case Type::drop: {
      Drop message;
      message.request = in.take<std::uint64_t>();
      message.qpn = in.take<std::uint32_t>();
      return Message(message);
    }
    case Type::keys:
      return take_keys(in);
    case Type::key:
      return take_key(in);
    case Type::no_key: {
      NoKey message;
      message.memory = in.take<std::uint32_t>();
      STAGEWIRE_ASSIGN(message.kind, take_kind(in));
      message.text = in.take_text();
      return Message(std::move(message));
    }
    case Type::renewed: {
      Renewed message;
      STAGEWIRE_ASSIGN(message.port, take_port(in));
      return Message(message);
    }
  }
  return bad("unknown type " + std::to_string(type));
}

struct Encoder {
  std::string& out;
  void operator()(const Connect& m) const { connection(Type::connect, m); }
  void operator()(const Connected& m) const { connection(Type::connected, m); }
  void operator()(const Refused& m) const {
    begin(Type::refused);
    bytes::put(out, m.request);
    put_error(out, m.kind, m.text);
  }
  void operator()(const Drop& m) const {
    begin(Type::drop);
    bytes::put(out, m.request);
    bytes::put(out, m.qpn);
  }
  void operator()(const Keys& m) const {
    begin(Type::keys);
    bytes::put(out, static_cast<std::uint16_t>(m.memories.size()));
    for (const std::uint32_t memory : m.memories) bytes::put(out, memory);
  }
  void operator()(const Key& m) const {
    begin(Type::key);
    bytes::put(out, m.memory);
    bytes::put(out, m.address);
    bytes::put(out, m.size);
    bytes::put(out, m.piece);
    bytes::put(out, static_cast<std::uint16_t>(m.rkeys.size()));
    for (const std::uint32_t rkey : m.rkeys) bytes::put(out, rkey);
  }
  void operator()(const NoKey& m) const {
    begin(Type::no_key);
    bytes::put(out, m.memory);
    put_error(out, m.kind, m.text);
  }
  void operator()(const Renewed& m) const {
    begin(Type::renewed);
    put_port(out, m.port);
  }
  void begin(Type type) const { bytes::put(out, static_cast<std::uint8_t>(type)); }
  template <typename M>
  void connection(Type type, const M& m) const {
    begin(type);
    bytes::put(out, m.request);
    put_port(out, m.port);
    bytes::put(out, m.depth);
    put_queues(out, m.queues);
  }
};

}  // namespace

std::string encode(const Hello& hello) {
  std::string out;
  bytes::put(out, kVersion);
  bytes::put(out, static_cast<std::uint8_t>(hello.usable ? 1 : 0));
  if (hello.usable) put_port(out, hello.port);
  return out;
}

Result<Hello> decode_hello(std::string_view text) {
  Cursor in(text);
  const std::uint8_t version = in.take<std::uint8_t>();
  if (version != kVersion) {
    return Error(ErrorKind::version_mismatch, "the peer's verbs transport speaks version " +
                                                  std::to_string(version) + "; this one speaks " +
                                                  std::to_string(kVersion));
  }
  Hello hello;
  const std::uint8_t usable = in.take<std::uint8_t>();
  if (usable > 1) return bad("the hello's second byte is " + std::to_string(usable) + "; expected 0 or 1");
  hello.usable = usable == 1;
  if (hello.usable) {
    STAGEWIRE_ASSIGN(hello.port, take_port(in));
  }
  if (!in.complete()) return bad("the hello has " + std::to_string(text.size()) + " bytes");
  return hello;
}

std::string encode(const Message& message) {
  std::string out;
  std::visit(Encoder{out}, message);
  return out;
}

Result<Message> decode(std::string_view text) {
  Cursor in(text);
  const auto type = static_cast<Type>(in.take<std::uint8_t>());
  STAGEWIRE_ASSIGN(Message message, take_body(type, in));
  if (!in.complete()) {
    return bad("a message of type " + std::to_string(type) + " has a wrong length (" +
               std::to_string(text.size()) + " bytes), or a text that is not plain or has more than " +
               std::to_string(kMaxText));
  }
  return message;
}

}  // namespace stagewire::verbs_wire
