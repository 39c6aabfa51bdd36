// Json: a value that prints itself as JSON, for the command's --json output. Writing only; the command reads
// no JSON. A plain value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stagewire::tools {

/// Text as a JSON string literal, quotes included. Bytes that are not valid in JSON text are escaped.
std::string json_quote(std::string_view text);

/// An object, a list or a scalar. Objects keep the order in which their members were set.
class Json {
 public:
  using Members = std::vector<std::pair<std::string, Json>>;
  using Items = std::vector<Json>;

  Json() = default;                                 ///< null
  Json(bool value) : value_(value) {}               // NOLINT(google-explicit-constructor): reads as a literal
  Json(double value) : value_(value) {}             // NOLINT(google-explicit-constructor)
  Json(int value) : value_(std::int64_t{value}) {}  // NOLINT(google-explicit-constructor)
  Json(std::int64_t value) : value_(value) {}       // NOLINT(google-explicit-constructor)
  Json(std::uint32_t value) : value_(std::int64_t{value}) {}  // NOLINT(google-explicit-constructor)
  Json(std::uint64_t value)
      : value_(static_cast<std::int64_t>(value)) {}             // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Json(const std::vector<std::string>& values);                 // NOLINT(google-explicit-constructor)

  static Json object() { return Json(Members{}); }
  static Json list() { return Json(Items{}); }

  /// Sets a member of an object (turning null into one) and returns this.
  Json& set(std::string name, Json value);
  /// Appends to a list (turning null into one) and returns this.
  Json& push(Json value);

  /// The text, indented by two spaces per level. Numbers that are not finite become null.
  std::string text() const;

 private:
  explicit Json(Members members) : value_(std::move(members)) {}
  explicit Json(Items items) : value_(std::move(items)) {}
  void write(std::string& out, int level) const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Items, Members> value_;
};

}  // namespace stagewire::tools
