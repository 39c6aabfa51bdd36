// What the frame encoder and decoder share: names of frame types, the checks of a frame's fields taken
// together, and printable texts. Stateless; any thread.
#include "session/wire.h"

#include <algorithm>
#include <array>

#include "session/wire_fields.h"

namespace stagewire::wire {

namespace {

/// The length of the valid UTF-8 sequence at the start of `text`, or 0. Follows table 3-7 of the Unicode
/// standard: no overlong forms, no surrogates, nothing above U+10FFFF.
std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto within = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return within(1, 0x80, 0xBF) ? 2 : 0;
  if (first < 0xF0) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : 0xBF;
    return within(1, low, high) && within(2, 0x80, 0xBF) ? 3 : 0;
  }
  const unsigned low = first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
  return within(1, low, high) && within(2, 0x80, 0xBF) && within(3, 0x80, 0xBF) ? 4 : 0;
}

/// C0 and C1 controls and the characters that reorder or break lines: they could forge or hide log lines.
bool is_control(std::string_view sequence) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (sequence.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (sequence.size() == 3 && byte(0) == 0xE2) {
    // U+2028…U+202E: line and paragraph separators, bidirectional embeddings; U+2066…U+2069: isolates.
    return (byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) ||
           (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
  }
  return false;
}

constexpr std::string_view kEllipsis = "…";

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(std::min(text.size(), limit));
  std::size_t cut = 0;  // the longest prefix of `out` that leaves room for the ellipsis
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    const std::string_view sequence = text.substr(0, std::max<std::size_t>(length, 1));
    std::string piece;
    if (length > 0 && !is_control(sequence)) {
      piece = sequence;
    } else {
      for (const char c : sequence) {
        const auto byte = static_cast<unsigned char>(c);
        piece += "\\x";
        piece += digits[byte >> 4U];
        piece += digits[byte & 0xFU];
      }
    }
    if (out.size() + piece.size() > limit) {
      out.resize(cut);
      if (limit >= kEllipsis.size()) out += kEllipsis;
      return out;
    }
    out += piece;
    if (out.size() + kEllipsis.size() <= limit) cut = out.size();
    text.remove_prefix(sequence.size());
  }
  return out;
}

FrameType type_of(const Frame& frame) noexcept {
  return std::visit([](const auto& f) { return kTypeOf<std::decay_t<decltype(f)>>; }, frame);
}

std::string_view to_string(FrameType type) noexcept {
  switch (type) {
    case FrameType::welcome:
      return "welcome";
    case FrameType::heartbeat:
      return "heartbeat";
    case FrameType::heartbeat_ack:
      return "heartbeat_ack";
    case FrameType::claim:
      return "claim";
    case FrameType::cancel_claim:
      return "cancel_claim";
    case FrameType::grant:
      return "grant";
    case FrameType::refuse:
      return "refuse";
    case FrameType::consumed:
      return "consumed";
    case FrameType::release:
      return "release";
    case FrameType::settled:
      return "settled";
    case FrameType::memory:
      return "memory";
    case FrameType::transport_message:
      return "transport_message";
    case FrameType::lifeline:
      return "lifeline";
    case FrameType::goodbye:
      return "goodbye";
    case FrameType::memory_gone:
      return "memory_gone";
  }
  return "unknown";
}

std::string problem_of_text(std::string_view value, std::size_t min, std::size_t max, Text rule) {
  if (value.size() < min || value.size() > max) {
    return "is " + std::to_string(value.size()) + " bytes long; expected " + std::to_string(min) + " to " +
           std::to_string(max);
  }
  if (rule == Text::plain &&
      !std::all_of(value.begin(), value.end(), [](char c) { return c > 0x20 && c < 0x7F; })) {
    return "is '" + printable(value, 64) + "'; expected printable ASCII without spaces";
  }
  return {};
}

std::string problem_of(const Grant& grant) {
  if ((grant.flags & Grant::kInline) != 0) {
    if (!grant.ranges.empty()) return "field 'ranges' is not empty although the body is inline";
    if (grant.inline_body.size() != grant.body_size) {
      return "field 'inline_body' has " + std::to_string(grant.inline_body.size()) +
             " bytes; expected body_size = " + std::to_string(grant.body_size);
    }
    return {};
  }
  if (!grant.inline_body.empty()) return "field 'inline_body' is not empty although the body is not inline";
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < grant.ranges.size(); ++i) {
    const RemoteRange& range = grant.ranges[i];
    const std::string name = "range " + std::to_string(i) + " of field 'ranges' ";
    if (range.length == 0) return name + "is empty; expected at least 1 byte";
    if (range.length > kAny<std::uint64_t> - range.offset) return name + "ends above 2^64";
    if (range.length > grant.body_size - sum) {
      return name + "goes beyond body_size = " + std::to_string(grant.body_size);
    }
    sum += range.length;
  }
  if (sum != grant.body_size) {
    return "field 'ranges' covers " + std::to_string(sum) +
           " bytes; expected body_size = " + std::to_string(grant.body_size);
  }
  return {};
}

std::string problem_of(const Welcome& welcome) {
  if (welcome.node.is_nil()) return "field 'node' is all zeros; expected a random node id";
  if (!welcome.last_session.empty() && welcome.last_session.size() != kSessionTagSize) {
    return "field 'last_session' has " + std::to_string(welcome.last_session.size()) +
           " bytes; expected 0 or 16";
  }
  if (welcome.unix_name.find('\0') != std::string::npos) return "field 'unix_name' contains a NUL byte";
  for (std::size_t i = 0; i < welcome.transports.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (welcome.transports[i].first == welcome.transports[j].first) {
        return "field 'transports' names '" + welcome.transports[i].first + "' twice";
      }
    }
  }
  return {};
}

}  // namespace stagewire::wire
