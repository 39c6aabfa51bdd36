// Bytes from a peer to frames. Everything here treats its input as hostile: nothing is allocated before its
// size has been compared with a bound, and strings are copied out of the body once. Stateless; any thread.
#include <algorithm>
#include <array>
#include <exception>
#include <msgpack.hpp>
#include <string>

#include "session/wire_fields.h"

namespace stagewire::wire {

namespace {

/// How deep unknown trailing fields may nest; known ones nest once.
constexpr int kMaxDepth = 8;
/// More trailing fields than any later minor version will add.
constexpr std::uint32_t kMaxFields = 64;

Error violation(FrameType type, const std::string& what) {
  return Error(ErrorKind::protocol,
               "the peer sent a bad " + std::string(to_string(type)) + " frame: " + what);
}

/// One field to fill: where its value goes and what it may be.
struct Slot {
  enum class Shape : std::uint8_t {
    number,
    node,
    text,
    bytes,
    texts,
    pairs,
    ranges,
    memory_kind,
    error_kind
  };
  Shape shape = Shape::number;
  Text rule = Text::any;
  std::uint8_t width = 0;  ///< number: bytes of the integer; lists: elements per entry
  std::string_view name;
  void* target = nullptr;      ///< of the type that `shape` (and `width`) says
  std::uint64_t min = 0;       ///< number: value; text and bytes: size
  std::uint64_t max = 0;       ///< as min; lists: number of entries
  std::size_t first_max = 0;   ///< lists: size of an entry's first string
  std::size_t second_max = 0;  ///< pairs: size of an entry's second string
};

std::string_view expected(Slot::Shape shape) noexcept {
  switch (shape) {
    case Slot::Shape::number:
    case Slot::Shape::error_kind:
      return "an unsigned integer";
    case Slot::Shape::node:
      return "16 bytes";
    case Slot::Shape::text:
      return "text";
    case Slot::Shape::bytes:
      return "bytes";
    case Slot::Shape::texts:
      return "a list of texts";
    case Slot::Shape::pairs:
      return "a flat list of names and bytes";
    case Slot::Shape::ranges:
      return "a flat list of memory, offset and length";
    case Slot::Shape::memory_kind:
      return "a list of memory type and device";
  }
  return "something else";
}

/// Fills the fields of one frame from msgpack's events. Lives on the stack of one decode_body call.
class BodyReader : public msgpack::null_visitor {
 public:
  // What describe() calls: one slot per field.
  template <typename T>
  void number(std::string_view name, T& target, std::uint64_t min, std::uint64_t max) {
    Slot& slot = add(Slot::Shape::number, name, &target);
    slot.width = sizeof(T);
    slot.min = min;
    slot.max = max;
  }
  void node(std::string_view name, NodeId& target) { add(Slot::Shape::node, name, &target); }
  void text(std::string_view name, std::string& target, std::size_t min, std::size_t max, Text rule) {
    Slot& slot = add(Slot::Shape::text, name, &target);
    slot.rule = rule;
    slot.min = min;
    slot.max = max;
  }
  void bytes(std::string_view name, std::string& target, std::size_t max) {
    add(Slot::Shape::bytes, name, &target).max = max;
  }
  void texts(std::string_view name, std::vector<std::string>& target, std::size_t max_count,
             std::size_t max_size) {
    list(add(Slot::Shape::texts, name, &target), max_count, 1, max_size, 0);
  }
  void pairs(std::string_view name, std::vector<std::pair<std::string, std::string>>& target,
             std::size_t max_count, std::size_t max_first, std::size_t max_second) {
    list(add(Slot::Shape::pairs, name, &target), max_count, 2, max_first, max_second);
  }
  void ranges(std::string_view name, std::vector<RemoteRange>& target, std::size_t max_count) {
    list(add(Slot::Shape::ranges, name, &target), max_count, 3, 0, 0);
  }
  void memory_kind(std::string_view name, MemoryKind& target) {
    list(add(Slot::Shape::memory_kind, name, &target), 1, 2, 0, 0);
  }
  void error_kind(std::string_view name, ErrorKind& target) { add(Slot::Shape::error_kind, name, &target); }

  /// Parses the whole body; gives what is wrong with it, or an empty string.
  std::string read(std::string_view body);

  // What msgpack calls. False stops the parser; problem_ says why.
  bool visit_nil() { return other("nil"); }
  bool visit_boolean(bool /*value*/) { return other("a boolean"); }
  bool visit_float32(float /*value*/) { return other("a float"); }
  bool visit_float64(double /*value*/) { return other("a float"); }
  bool visit_ext(const char* /*data*/, std::uint32_t /*size*/) { return other("an extension"); }
  bool visit_negative_integer(std::int64_t value) {
    // The parser calls this for the signed encodings, whatever the sign.
    if (value >= 0) return visit_positive_integer(static_cast<std::uint64_t>(value));
    return other("a negative integer");
  }
  bool visit_positive_integer(std::uint64_t value);
  bool visit_str(const char* data, std::uint32_t size) { return on_string({data, size}, false); }
  bool visit_bin(const char* data, std::uint32_t size) { return on_string({data, size}, true); }
  bool start_array(std::uint32_t count);
  bool end_array_item();
  bool end_array() {
    --depth_;
    return true;
  }
  bool start_map(std::uint32_t /*count*/) {
    if (!other("a map")) return false;
    return deeper();
  }
  bool end_map() {
    --depth_;
    return true;
  }
  void parse_error(std::size_t /*parsed*/, std::size_t offset) {
    problem_ = "its body is not msgpack at byte " + std::to_string(offset);
  }
  void insufficient_bytes(std::size_t /*parsed*/, std::size_t /*offset*/) {
    problem_ = "its body is cut off";
  }

 private:
  Slot& add(Slot::Shape shape, std::string_view name, void* target) {
    Slot& slot = slots_.at(slot_count_++);
    slot.shape = shape;
    slot.name = name;
    slot.target = target;
    return slot;
  }
  static void list(Slot& slot, std::size_t max_count, std::uint8_t width, std::size_t first,
                   std::size_t second) {
    slot.max = max_count;
    slot.width = width;
    slot.first_max = first;
    slot.second_max = second;
  }
  /// The field that the parser is in, or nullptr in unknown trailing ones.
  const Slot* current() const noexcept { return field_ < slot_count_ ? &slots_[field_] : nullptr; }
  bool fail(std::string_view name, const std::string& what) {
    problem_ = "field '" + std::string(name) + "' " + what;
    return false;
  }
  bool wrong_shape(const Slot& slot, std::string_view got) {
    return fail(slot.name,
                "is or contains " + std::string(got) + "; expected " + std::string(expected(slot.shape)));
  }
  /// An element of a type that no known field has.
  bool other(std::string_view got) {
    if (depth_ == 0) {
      problem_ = "its body is " + std::string(got) + "; expected an array";
      return false;
    }
    const Slot* slot = current();
    return slot == nullptr || wrong_shape(*slot, got);
  }
  bool deeper() {
    if (++depth_ <= kMaxDepth) return true;
    problem_ = "its body nests deeper than " + std::to_string(kMaxDepth) + " levels";
    return false;
  }
  bool on_number(const Slot& slot, std::uint64_t value);
  bool on_list_number(const Slot& slot, std::uint64_t value);
  bool on_string(std::string_view value, bool is_bin);
  bool on_list_string(const Slot& slot, std::string_view value, bool is_bin);
  bool in_range(const Slot& slot, std::uint64_t value, std::uint64_t min, std::uint64_t max) {
    if (value >= min && value <= max) return true;
    return fail(slot.name, "is or contains " + std::to_string(value) + "; expected " + std::to_string(min) +
                               " to " + std::to_string(max));
  }

  std::array<Slot, 11> slots_;  // a welcome has eleven fields, the most of all frames
  std::size_t slot_count_ = 0;
  std::size_t field_ = 0;    // index of the current element of the body's array
  std::size_t element_ = 0;  // index within the current field's list
  int depth_ = 0;            // 1: in the body's array; 2: in a field's list
  std::size_t body_size_ = 0;
  std::string problem_;
};

std::string BodyReader::read(std::string_view body) {
  body_size_ = body.size();
  if (body.empty()) return "its body is empty; expected an array";
  try {
    std::size_t offset = 0;
    if (msgpack::parse(body.data(), body.size(), offset, *this)) {
      if (offset == body.size()) return {};
      return std::to_string(body.size() - offset) + " bytes follow its body's array";
    }
  } catch (const std::exception& e) {
    return "its body cannot be parsed (" + std::string(e.what()) + ")";
  }
  return problem_.empty() ? "its body cannot be parsed" : problem_;
}

bool BodyReader::visit_positive_integer(std::uint64_t value) {
  const Slot* slot = current();
  if (depth_ == 0 || slot == nullptr) return other("an integer");
  return depth_ == 1 ? on_number(*slot, value) : on_list_number(*slot, value);
}

bool BodyReader::on_number(const Slot& slot, std::uint64_t value) {
  if (slot.shape == Slot::Shape::error_kind) {
    // A later version may know more kinds; its text still says what happened.
    *static_cast<ErrorKind*>(slot.target) = value <= static_cast<std::uint64_t>(ErrorKind::internal)
                                                ? static_cast<ErrorKind>(value)
                                                : ErrorKind::internal;
    return true;
  }
  if (slot.shape != Slot::Shape::number) return wrong_shape(slot, "an integer");
  if (!in_range(slot, value, slot.min, slot.max)) return false;
  switch (slot.width) {
    case 1:
      *static_cast<std::uint8_t*>(slot.target) = static_cast<std::uint8_t>(value);
      break;
    case 2:
      *static_cast<std::uint16_t*>(slot.target) = static_cast<std::uint16_t>(value);
      break;
    case 4:
      *static_cast<std::uint32_t*>(slot.target) = static_cast<std::uint32_t>(value);
      break;
    default:
      *static_cast<std::uint64_t*>(slot.target) = value;
      break;
  }
  return true;
}

bool BodyReader::on_list_number(const Slot& slot, std::uint64_t value) {
  if (slot.shape == Slot::Shape::memory_kind) {
    auto& kind = *static_cast<MemoryKind*>(slot.target);
    if (element_ == 0) {
      if (!in_range(slot, value, 0, static_cast<std::uint64_t>(MemoryKind::Type::cuda))) return false;
      kind.type = static_cast<MemoryKind::Type>(value);
      return true;
    }
    if (!in_range(slot, value, 0, kind.is_host() ? 0 : kAny<std::uint16_t>)) return false;
    kind.device = static_cast<std::uint16_t>(value);
    return true;
  }
  if (slot.shape != Slot::Shape::ranges) return wrong_shape(slot, "an integer");
  auto& ranges = *static_cast<std::vector<RemoteRange>*>(slot.target);
  switch (element_ % 3) {
    case 0:
      if (!in_range(slot, value, 0, kAny<std::uint32_t>)) return false;
      ranges.push_back({static_cast<std::uint32_t>(value), 0, 0});
      return true;
    case 1:
      ranges.back().offset = value;
      return true;
    default:
      ranges.back().length = value;
      return true;
  }
}

bool BodyReader::on_string(std::string_view value, bool is_bin) {
  const Slot* slot = current();
  const std::string_view got = is_bin ? "bytes" : "text";
  if (depth_ == 0 || slot == nullptr) return other(got);
  if (depth_ > 1) return on_list_string(*slot, value, is_bin);
  if (slot->shape == Slot::Shape::node && is_bin) {
    auto& id = *static_cast<NodeId*>(slot->target);
    if (value.size() != id.bytes.size()) {
      return fail(slot->name, "has " + std::to_string(value.size()) + " bytes; expected 16");
    }
    std::copy(value.begin(), value.end(), id.bytes.begin());
    return true;
  }
  if (slot->shape != (is_bin ? Slot::Shape::bytes : Slot::Shape::text)) return wrong_shape(*slot, got);
  const std::string problem = problem_of_text(value, slot->min, slot->max, slot->rule);
  if (!problem.empty()) return fail(slot->name, problem);
  auto& target = *static_cast<std::string*>(slot->target);
  if (slot->rule == Text::message) {
    target = printable(value, slot->max);
  } else {
    target.assign(value);
  }
  return true;
}

bool BodyReader::on_list_string(const Slot& slot, std::string_view value, bool is_bin) {
  const bool second = slot.shape == Slot::Shape::pairs && element_ % 2 == 1;
  const bool is_list = slot.shape == Slot::Shape::texts || slot.shape == Slot::Shape::pairs;
  if (!is_list || is_bin != second) return wrong_shape(slot, is_bin ? "bytes" : "text");
  const std::string problem = second ? problem_of_text(value, 0, slot.second_max, Text::any)
                                     : problem_of_text(value, 1, slot.first_max, Text::plain);
  if (!problem.empty()) return fail(slot.name, "has an entry that " + problem);
  if (slot.shape == Slot::Shape::texts) {
    static_cast<std::vector<std::string>*>(slot.target)->emplace_back(value);
  } else {
    auto& pairs = *static_cast<std::vector<std::pair<std::string, std::string>>*>(slot.target);
    if (second) {
      pairs.back().second.assign(value);
    } else {
      pairs.emplace_back(value, std::string());
    }
  }
  return true;
}

bool BodyReader::start_array(std::uint32_t count) {
  if (depth_ == 0) {
    if (count < slot_count_) {
      problem_ = "field '" + std::string(slots_[count].name) + "' is missing (" + std::to_string(count) +
                 " fields; expected at least " + std::to_string(slot_count_) + ")";
      return false;
    }
    if (count > kMaxFields) {
      problem_ = std::to_string(count) + " fields; expected at most " + std::to_string(kMaxFields);
      return false;
    }
    return deeper();
  }
  const Slot* slot = current();
  if (slot == nullptr) return deeper();
  if (depth_ > 1 || slot->shape < Slot::Shape::texts || slot->shape == Slot::Shape::error_kind) {
    return wrong_shape(*slot, "a list");
  }
  const std::uint64_t most = slot->max * slot->width;
  if (slot->shape == Slot::Shape::memory_kind ? count != most : count > most || count % slot->width != 0) {
    return fail(slot->name, "has " + std::to_string(count) + " elements; expected " +
                                (slot->shape == Slot::Shape::memory_kind ? "" : "at most ") +
                                std::to_string(most) +
                                (slot->width > 1 ? ", a multiple of " + std::to_string(slot->width) : ""));
  }
  // Every element takes a byte at least: a count above that is a lie, and must not make us reserve memory.
  if (count > body_size_) return fail(slot->name, "has more elements than the body has bytes");
  if (slot->shape == Slot::Shape::ranges) {
    static_cast<std::vector<RemoteRange>*>(slot->target)->reserve(count / slot->width);
  }
  element_ = 0;
  return deeper();
}

bool BodyReader::end_array_item() {
  if (depth_ == 1) {
    ++field_;
  } else if (depth_ == 2) {
    ++element_;
  }
  return true;
}

template <typename F>
Result<Frame> decode_as(std::string_view body) {
  F frame;
  BodyReader reader;
  describe(reader, frame);
  std::string problem = reader.read(body);
  if (problem.empty()) problem = problem_of(frame);
  if (!problem.empty()) return violation(kTypeOf<F>, problem);
  return Frame(std::move(frame));
}

}  // namespace

Result<FrameHeader> decode_frame_header(std::string_view eight_bytes, std::size_t tag_size,
                                        std::uint32_t limit) {
  if (eight_bytes.size() != kFrameHeaderSize) {
    return Error(ErrorKind::internal, "a frame header of " + std::to_string(eight_bytes.size()) + " bytes");
  }
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(eight_bytes[i]); };
  FrameHeader header;
  for (std::size_t i = 0; i < 4; ++i) header.length |= static_cast<std::uint32_t>(byte(i)) << (8 * i);
  const std::uint8_t type = byte(4);
  if (type < static_cast<std::uint8_t>(FrameType::welcome) ||
      type > static_cast<std::uint8_t>(kLastFrameType)) {
    return Error(ErrorKind::protocol, "the peer sent a frame of unknown type " + std::to_string(type) +
                                          "; expected 1 to " +
                                          std::to_string(static_cast<int>(kLastFrameType)));
  }
  header.type = static_cast<FrameType>(type);
  if (byte(5) > 1 || byte(6) != 0 || byte(7) != 0) {
    return violation(header.type, "its header has reserved bits set (flags " + std::to_string(byte(5)) +
                                      ", reserved " + std::to_string(byte(6) | byte(7) << 8) + ")");
  }
  if (header.type == FrameType::welcome) limit = std::min(limit, static_cast<std::uint32_t>(kMaxWelcome));
  if (header.length < 4 + tag_size || header.length > limit) {
    return violation(header.type, "its length is " + std::to_string(header.length) + "; expected " +
                                      std::to_string(4 + tag_size) + " to " + std::to_string(limit));
  }
  header.with_descriptor = byte(5) != 0;
  if (header.with_descriptor && !may_carry_descriptor(header.type)) {
    return violation(header.type, "it announces a descriptor, which this type never carries");
  }
  if (!header.with_descriptor && must_carry_descriptor(header.type)) {
    return violation(header.type, "it announces no descriptor, which this type always carries");
  }
  return header;
}

Result<Frame> decode_body(FrameType type, std::string_view body) {
  switch (type) {
    case FrameType::welcome:
      return decode_as<Welcome>(body);
    case FrameType::heartbeat:
      return decode_as<Heartbeat>(body);
    case FrameType::heartbeat_ack:
      return decode_as<HeartbeatAck>(body);
    case FrameType::claim:
      return decode_as<Claim>(body);
    case FrameType::cancel_claim:
      return decode_as<CancelClaim>(body);
    case FrameType::grant:
      return decode_as<Grant>(body);
    case FrameType::refuse:
      return decode_as<Refuse>(body);
    case FrameType::consumed:
      return decode_as<Consumed>(body);
    case FrameType::release:
      return decode_as<Release>(body);
    case FrameType::settled:
      return decode_as<Settled>(body);
    case FrameType::memory:
      return decode_as<Memory>(body);
    case FrameType::transport_message:
      return decode_as<TransportMessage>(body);
    case FrameType::lifeline:
      return decode_as<Lifeline>(body);
    case FrameType::goodbye:
      return decode_as<Goodbye>(body);
    case FrameType::memory_gone:
      return decode_as<MemoryGone>(body);
  }
  return Error(ErrorKind::protocol,
               "the peer sent a frame of unknown type " + std::to_string(static_cast<int>(type)));
}

}  // namespace stagewire::wire
