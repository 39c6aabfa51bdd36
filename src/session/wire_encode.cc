// Frames to bytes. Stateless; any thread.
#include <algorithm>
#include <msgpack.hpp>
#include <string>

#include "session/wire_fields.h"

namespace stagewire::wire {

namespace {

// Error kinds travel as their numbers, so the enumeration may only grow at its end.
static_assert(static_cast<int>(ErrorKind::invalid_argument) == 0 &&
              static_cast<int>(ErrorKind::peer_restarted) == 8 &&
              static_cast<int>(ErrorKind::pool_exhausted) == 15 &&
              static_cast<int>(ErrorKind::internal) == 24);

struct FieldCounter {
  std::uint32_t count = 0;
  template <typename... Args>
  void number(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void node(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void text(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void bytes(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void texts(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void pairs(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void ranges(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void memory_kind(const Args&... /*field*/) {
    ++count;
  }
  template <typename... Args>
  void error_kind(const Args&... /*field*/) {
    ++count;
  }
};

/// msgpack's stream concept over a string.
struct StringStream {
  std::string& out;
  void write(const char* data, std::size_t size) { out.append(data, size); }
};

/// Packs fields and remembers the first that breaks its bounds.
class FieldPacker {
 public:
  explicit FieldPacker(StringStream& stream) : packer_(stream) {}

  const std::string& problem() const noexcept { return problem_; }
  void start(std::uint32_t fields) { packer_.pack_array(fields); }

  void number(std::string_view name, std::uint64_t value, std::uint64_t min, std::uint64_t max) {
    if (value < min || value > max) {
      complain(name, "is " + std::to_string(value) + "; expected " + std::to_string(min) + " to " +
                         std::to_string(max));
    }
    packer_.pack_uint64(value);
  }
  void node(std::string_view /*name*/, const NodeId& id) {
    pack_bin({reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()});
  }
  void text(std::string_view name, std::string_view value, std::size_t min, std::size_t max, Text rule) {
    if (rule == Text::message) {
      pack_str(value.size() <= max ? value : std::string_view(printable(value, max)));
      return;
    }
    complain(name, problem_of_text(value, min, max, rule));
    pack_str(value);
  }
  void bytes(std::string_view name, std::string_view value, std::size_t max) {
    complain(name, problem_of_text(value, 0, max, Text::any));
    pack_bin(value);
  }
  void texts(std::string_view name, const std::vector<std::string>& values, std::size_t max_count,
             std::size_t max_size) {
    start_list(name, values.size(), max_count, 1);
    for (const std::string& value : values) {
      complain(name, problem_of_text(value, 1, max_size, Text::plain));
      pack_str(value);
    }
  }
  void pairs(std::string_view name, const std::vector<std::pair<std::string, std::string>>& values,
             std::size_t max_count, std::size_t max_first, std::size_t max_second) {
    start_list(name, values.size(), max_count, 2);
    for (const auto& [first, second] : values) {
      complain(name, problem_of_text(first, 1, max_first, Text::plain));
      complain(name, problem_of_text(second, 0, max_second, Text::any));
      pack_str(first);
      pack_bin(second);
    }
  }
  void ranges(std::string_view name, const std::vector<RemoteRange>& values, std::size_t max_count) {
    start_list(name, values.size(), max_count, 3);
    for (const RemoteRange& range : values) {
      packer_.pack_uint32(range.memory);
      packer_.pack_uint64(range.offset);
      packer_.pack_uint64(range.length);
    }
  }
  void memory_kind(std::string_view name, MemoryKind kind) {
    if (kind.is_host() && kind.device != 0) complain(name, "is host memory with a device number");
    packer_.pack_array(2);
    packer_.pack_uint8(static_cast<std::uint8_t>(kind.type));
    packer_.pack_uint16(kind.device);
  }
  void error_kind(std::string_view /*name*/, ErrorKind kind) {
    packer_.pack_uint8(static_cast<std::uint8_t>(kind));
  }

 private:
  void complain(std::string_view name, const std::string& what) {
    if (problem_.empty() && !what.empty()) problem_ = "field '" + std::string(name) + "' " + what;
  }
  void start_list(std::string_view name, std::size_t count, std::size_t max, std::size_t width) {
    if (count > max) {
      complain(name, "has " + std::to_string(count) + " entries; expected at most " + std::to_string(max));
    }
    // The count is at most `max` entries, or the bytes are thrown away.
    packer_.pack_array(static_cast<std::uint32_t>(std::min(count, max) * width));
  }
  void pack_str(std::string_view value) {
    packer_.pack_str(static_cast<std::uint32_t>(value.size()));
    packer_.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
  }
  void pack_bin(std::string_view value) {
    packer_.pack_bin(static_cast<std::uint32_t>(value.size()));
    packer_.pack_bin_body(value.data(), static_cast<std::uint32_t>(value.size()));
  }

  msgpack::packer<StringStream> packer_;
  std::string problem_;
};

/// Appends header and body; gives what is wrong with the frame, or an empty string.
template <typename F>
std::string append(const F& frame, bool with_descriptor, std::size_t tag_size, std::string& out) {
  constexpr FrameType type = kTypeOf<F>;
  if (tag_size != 0 && tag_size != kTagSize) return "tag size " + std::to_string(tag_size);
  if (with_descriptor && !may_carry_descriptor(type)) return "it cannot carry a descriptor";
  if (!with_descriptor && must_carry_descriptor(type)) return "it must carry a descriptor";
  std::string problem = problem_of(frame);
  if (!problem.empty()) return problem;

  const std::size_t start = out.size();
  out.resize(start + kFrameHeaderSize);
  FieldCounter counter;
  describe(counter, frame);
  StringStream stream{out};
  FieldPacker packer(stream);
  packer.start(counter.count);
  describe(packer, frame);
  if (!packer.problem().empty()) return packer.problem();

  const std::size_t length = out.size() - start - 4 + tag_size;
  const std::size_t limit = type == FrameType::welcome ? kMaxWelcome : kMaxFrame;
  if (length > limit) {
    return "its length is " + std::to_string(length) + " bytes; expected at most " + std::to_string(limit);
  }
  for (std::size_t i = 0; i < 4; ++i) out[start + i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  out[start + 4] = static_cast<char>(type);
  out[start + 5] = with_descriptor ? '\1' : '\0';
  return {};
}

}  // namespace

Status encode(const Frame& frame, bool with_descriptor, std::size_t tag_size, std::string& out) {
  const std::size_t before = out.size();
  const std::string problem =
      std::visit([&](const auto& f) { return append(f, with_descriptor, tag_size, out); }, frame);
  if (problem.empty()) return {};
  out.resize(before);
  return Error(ErrorKind::internal,
               "a " + std::string(to_string(type_of(frame))) + " frame cannot be sent: " + problem);
}

}  // namespace stagewire::wire
