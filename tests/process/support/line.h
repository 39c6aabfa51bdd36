// Line: one command or answer of the protocol between a test and its peer process: a verb and named values,
// percent-encoded, on one line of text. A value; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace stagewire::test {

struct Line {
  std::string verb;
  std::map<std::string, std::string> values;

  Line() = default;
  explicit Line(std::string word) : verb(std::move(word)) {}

  Line& with(const std::string& name, const std::string& value) & {
    values[name] = value;
    return *this;
  }
  Line&& with(const std::string& name, const std::string& value) && { return std::move(with(name, value)); }
  Line& with(const std::string& name, std::uint64_t value) & { return with(name, std::to_string(value)); }
  Line&& with(const std::string& name, std::uint64_t value) && { return std::move(with(name, value)); }

  bool has(const std::string& name) const { return values.count(name) != 0; }
  /// "" if it is not there.
  std::string text(const std::string& name) const;
  /// `otherwise` if it is not there.
  std::uint64_t number(const std::string& name, std::uint64_t otherwise = 0) const;

  /// Without the newline.
  std::string to_text() const;
  static Line parse(std::string_view text);
};

}  // namespace stagewire::test
