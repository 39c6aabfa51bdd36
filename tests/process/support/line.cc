// See line.h.
#include "process/support/line.h"

#include <cctype>
#include <cstdlib>

namespace stagewire::test {

namespace {

std::string escape(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isgraph(byte) != 0 && c != '%' && c != '=') {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    }
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::strtoul(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string Line::text(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

std::uint64_t Line::number(const std::string& name, std::uint64_t otherwise) const {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
}

std::string Line::to_text() const {
  std::string out = verb;
  for (const auto& [name, value] : values) out += ' ' + name + '=' + escape(value);
  return out;
}

Line Line::parse(std::string_view text) {
  Line line;
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      line.verb = word;
    } else {
      line.values[std::string(word.substr(0, equals))] = unescape(word.substr(equals + 1));
    }
  }
  return line;
}

}  // namespace stagewire::test
