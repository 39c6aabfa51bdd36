// The text form of tickets. See ticket.h.
#include <charconv>

#include <stagewire/node/ticket.h>

namespace stagewire {

namespace {

constexpr std::string_view kMagic = "swt1";
// Longer than any ticket with the longest parts, all percent-encoded.
constexpr std::size_t kMaxText = 64U << 10U;
constexpr std::size_t kMaxPart = 1024;
constexpr std::size_t kMaxAddresses = 16;

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.' || c == ':' || c == '@' || c == '/' || c == '[' || c == ']';
}

std::string escape(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    }
  }
  return out;
}

Error bad(std::string_view field, std::string_view why) {
  return Error(ErrorKind::invalid_argument, "not a ticket: " + std::string(field) + " " + std::string(why));
}

Result<std::string> unescape(std::string_view field, std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!is_plain(text[i])) return bad(field, "has a character that should be percent-encoded");
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return bad(field, "ends inside a percent-encoded character");
    const auto parsed = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (parsed.ptr != text.data() + i + 3) return bad(field, "has a wrong percent-encoded character");
    out += static_cast<char>(value);
    i += 2;
  }
  if (out.size() > kMaxPart) return bad(field, "is longer than 1024 bytes");
  return out;
}

Result<std::uint64_t> number(std::string_view field, std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return bad(field, "is not a number");
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

}  // namespace

std::string Key::to_string() const {
  std::string text;
  if (!name_space.empty()) text += name_space + "/";
  if (!from_stage.empty() || !to_stage.empty()) text += from_stage + "→" + to_stage + "/";
  return text + key;
}

std::string Ticket::to_text() const {
  std::string text(kMagic);
  text += '|' + node.hex() + '|' + std::to_string(generation) + '|' + std::to_string(size) + '|';
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (i != 0) text += ',';
    text += escape(addresses[i]);
  }
  for (const std::string* part : {&key.name_space, &key.from_stage, &key.to_stage, &key.key})
    text += '|' + escape(*part);
  return text;
}

Result<Ticket> Ticket::parse(std::string_view text) {
  if (text.size() > kMaxText) return bad("it", "is longer than 64 KiB");
  const std::vector<std::string_view> fields = split(text, '|');
  if (fields.size() != 9 || fields[0] != kMagic) {
    return bad("it", "does not have the form swt1|node|generation|size|addresses|namespace|from|to|key");
  }
  Ticket ticket;
  STAGEWIRE_ASSIGN(ticket.node, NodeId::parse(fields[1]));
  STAGEWIRE_ASSIGN(ticket.generation, number("generation", fields[2]));
  STAGEWIRE_ASSIGN(ticket.size, number("size", fields[3]));
  if (ticket.generation == 0) return bad("generation", "is 0");
  if (!fields[4].empty()) {
    for (const std::string_view address : split(fields[4], ',')) {
      STAGEWIRE_ASSIGN(std::string plain, unescape("an address", address));
      ticket.addresses.push_back(std::move(plain));
    }
  }
  if (ticket.addresses.size() > kMaxAddresses) return bad("addresses", "are more than 16");
  STAGEWIRE_ASSIGN(ticket.key.name_space, unescape("namespace", fields[5]));
  STAGEWIRE_ASSIGN(ticket.key.from_stage, unescape("from_stage", fields[6]));
  STAGEWIRE_ASSIGN(ticket.key.to_stage, unescape("to_stage", fields[7]));
  STAGEWIRE_ASSIGN(ticket.key.key, unescape("key", fields[8]));
  return ticket;
}

}  // namespace stagewire
