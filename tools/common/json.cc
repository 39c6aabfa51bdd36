// See json.h.
#include "common/json.h"

#include <cmath>
#include <cstdio>

namespace stagewire::tools {

namespace {

void new_line(std::string& out, int level) {
  out += '\n';
  out.append(static_cast<std::size_t>(level) * 2, ' ');
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Json::Json(const std::vector<std::string>& values) : value_(Items{}) {
  for (const std::string& value : values) push(value);
}

Json& Json::set(std::string name, Json value) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = Members{};
  std::get<Members>(value_).emplace_back(std::move(name), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = Items{};
  std::get<Items>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::text() const {
  std::string out;
  write(out, 0);
  return out;
}

void Json::write(std::string& out, int level) const {
  if (const auto* truth = std::get_if<bool>(&value_)) {
    out += *truth ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&value_)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    if (!std::isfinite(*number)) {
      out += "null";
      return;
    }
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", *number);
    out += text;
  } else if (const auto* string = std::get_if<std::string>(&value_)) {
    out += json_quote(*string);
  } else if (const auto* items = std::get_if<Items>(&value_)) {
    out += '[';
    for (std::size_t i = 0; i < items->size(); ++i) {
      new_line(out, level + 1);
      (*items)[i].write(out, level + 1);
      if (i + 1 < items->size()) out += ',';
    }
    if (!items->empty()) new_line(out, level);
    out += ']';
  } else if (const auto* members = std::get_if<Members>(&value_)) {
    out += '{';
    for (std::size_t i = 0; i < members->size(); ++i) {
      new_line(out, level + 1);
      out += json_quote((*members)[i].first) + ": ";
      (*members)[i].second.write(out, level + 1);
      if (i + 1 < members->size()) out += ',';
    }
    if (!members->empty()) new_line(out, level);
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace stagewire::tools
