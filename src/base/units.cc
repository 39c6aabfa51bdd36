// Parsing and printing of sizes and durations. Integer arithmetic throughout, so that what is written is what
// is meant, and so that overflow is seen. No state; any thread.
#include "base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

namespace stagewire {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t scale;
};

constexpr std::uint64_t kKi = 1ULL << 10;
constexpr std::uint64_t kMi = 1ULL << 20;
constexpr std::uint64_t kGi = 1ULL << 30;
constexpr std::uint64_t kTi = 1ULL << 40;
constexpr std::uint64_t kK = 1'000;
constexpr std::uint64_t kM = 1'000'000;
constexpr std::uint64_t kG = 1'000'000'000;
constexpr std::uint64_t kT = 1'000'000'000'000;

// Lower case: the text is folded before it is compared.
constexpr std::array kSizeUnits{
    Unit{"", 1},     Unit{"b", 1},     Unit{"k", kK},   Unit{"kb", kK},   Unit{"m", kM},   Unit{"mb", kM},
    Unit{"g", kG},   Unit{"gb", kG},   Unit{"t", kT},   Unit{"tb", kT},   Unit{"ki", kKi}, Unit{"kib", kKi},
    Unit{"mi", kMi}, Unit{"mib", kMi}, Unit{"gi", kGi}, Unit{"gib", kGi}, Unit{"ti", kTi}, Unit{"tib", kTi}};

constexpr std::uint64_t kMicrosecond = 1'000;
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMinute = 60 * kSecond;
constexpr std::uint64_t kHour = 60 * kMinute;
constexpr std::uint64_t kDay = 24 * kHour;

// The micro sign exists twice in Unicode: U+00B5, which keyboards give, and U+03BC, the Greek letter.
constexpr std::array kDurationUnits{Unit{"ns", 1},
                                    Unit{"us", kMicrosecond},
                                    Unit{"\u00b5s", kMicrosecond},
                                    Unit{"\u03bcs", kMicrosecond},
                                    Unit{"ms", kMillisecond},
                                    Unit{"s", kSecond},
                                    Unit{"sec", kSecond},
                                    Unit{"second", kSecond},
                                    Unit{"seconds", kSecond},
                                    Unit{"m", kMinute},
                                    Unit{"min", kMinute},
                                    Unit{"minute", kMinute},
                                    Unit{"minutes", kMinute},
                                    Unit{"h", kHour},
                                    Unit{"hour", kHour},
                                    Unit{"hours", kHour},
                                    Unit{"d", kDay},
                                    Unit{"day", kDay},
                                    Unit{"days", kDay}};

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string result = "'";
  result += text.substr(0, kShown);
  if (text.size() > kShown) result += "…";
  return result += '\'';
}

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

// A decimal number in two halves: whole + fraction / 10^digits.
struct Number {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;
  std::uint64_t fraction_scale = 1;
};

// More digits than this after the point are below one unit of the smallest result there is (a nanosecond of a
// second), and would overflow the product in scaled().
constexpr std::uint64_t kMostFractionScale = 1'000'000'000;

enum class NumberFault : std::uint8_t { none, syntax, overflow };

// Takes the number off the front of `text`.
NumberFault take_number(std::string_view& text, Number& number) noexcept {
  NumberFault fault = NumberFault::none;
  std::size_t at = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    if (__builtin_mul_overflow(number.whole, std::uint64_t{10}, &number.whole) ||
        __builtin_add_overflow(number.whole, static_cast<std::uint64_t>(text[at] - '0'), &number.whole)) {
      fault = NumberFault::overflow;  // read on: the unit may be wrong as well, and is the clearer complaint
    }
  }
  if (at == 0) return NumberFault::syntax;
  if (at < text.size() && text[at] == '.') {
    const std::size_t point = at++;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (number.fraction_scale == kMostFractionScale) continue;
      number.fraction = number.fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
      number.fraction_scale *= 10;
    }
    if (at == point + 1) return NumberFault::syntax;
  }
  text.remove_prefix(at);
  return fault;
}

// number × scale, rounded down; nothing if it does not fit.
std::optional<std::uint64_t> scaled(const Number& number, std::uint64_t scale) noexcept {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(number.whole, scale, &result)) return std::nullopt;
  // fraction < 10^9 and the remainder < 10^9, so neither product can overflow.
  const std::uint64_t part = number.fraction * (scale / number.fraction_scale) +
                             number.fraction * (scale % number.fraction_scale) / number.fraction_scale;
  if (__builtin_add_overflow(result, part, &result)) return std::nullopt;
  return result;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) noexcept {
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  return found == units.end() ? nullptr : &*found;
}

Error bad(std::string message) {
  return Error(ErrorKind::invalid_argument, std::move(message));
}

// Three significant digits without trailing zeros; `value` is below 1000.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::array<char, 32> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  std::string text(buffer.data(), static_cast<std::size_t>(std::max(length, 0)));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

// In the largest of `units` (ascending) that leaves a whole number.
std::string exact(std::uint64_t value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.scale == 0) best = &unit;
  }
  std::string text = std::to_string(value / best->scale);
  return best->name.empty() ? text : (text += ' ') += best->name;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t minimum, std::uint64_t maximum) {
  constexpr std::string_view kExpected = "expected a size such as '4 GiB', '512MiB', '1.5 GB' or '65536'";
  const std::string_view trimmed = trim(text);
  std::string_view rest = trimmed;
  Number number;
  const NumberFault fault = take_number(rest, number);
  if (fault == NumberFault::syntax) return bad(quoted(trimmed) + " is not a size; " + std::string(kExpected));
  rest = trim(rest);
  std::string folded(rest);
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const Unit* const unit = find_unit(kSizeUnits, folded);
  if (unit == nullptr) {
    return bad(quoted(trimmed) + " has the unknown unit " + quoted(rest) + "; " + std::string(kExpected));
  }
  if (unit->scale == 1 && number.fraction != 0) return bad(quoted(trimmed) + " names a fraction of a byte");
  const auto value = fault == NumberFault::overflow ? std::nullopt : scaled(number, unit->scale);
  if (!value || *value > maximum) {
    return bad(quoted(trimmed) + " is too large; at most " + exact_size(maximum) + " is allowed");
  }
  if (*value < minimum) {
    return bad(quoted(trimmed) + " is too small; at least " + exact_size(minimum) + " is needed");
  }
  return *value;
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text, std::chrono::nanoseconds minimum,
                                                std::chrono::nanoseconds maximum) {
  constexpr std::string_view kExpected =
      "expected a duration such as '30 s', '250ms', '5 min', '1h' or '20 us'";
  const std::string_view trimmed = trim(text);
  std::string_view rest = trimmed;
  Number number;
  const NumberFault fault = take_number(rest, number);
  if (fault == NumberFault::syntax) {
    return bad(quoted(trimmed) + " is not a duration; " + std::string(kExpected));
  }
  rest = trim(rest);
  const bool zero = fault == NumberFault::none && number.whole == 0 && number.fraction == 0;
  if (rest.empty() && !zero) {
    return bad(quoted(trimmed) + " has no unit; write '" + std::string(trimmed.substr(0, 20)) +
               " s' for seconds");
  }
  const Unit* const unit = rest.empty() ? &kDurationUnits.front() : find_unit(kDurationUnits, rest);
  if (unit == nullptr) {
    return bad(quoted(trimmed) + " has the unknown unit " + quoted(rest) + "; " + std::string(kExpected));
  }
  const auto value = fault == NumberFault::overflow ? std::nullopt : scaled(number, unit->scale);
  if (!value ||
      *value > static_cast<std::uint64_t>(std::max(maximum.count(), decltype(maximum.count()){0}))) {
    return bad(quoted(trimmed) + " is too long; at most " + exact_duration(maximum) + " is allowed");
  }
  const std::chrono::nanoseconds duration(static_cast<std::chrono::nanoseconds::rep>(*value));
  if (duration < minimum) {
    return bad(quoted(trimmed) + " is too short; at least " + exact_duration(minimum) + " is needed");
  }
  return duration;
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array kBinary{Unit{"KiB", kKi}, Unit{"MiB", kMi}, Unit{"GiB", kGi}, Unit{"TiB", kTi}};
  static constexpr std::array kDecimal{Unit{"B", 1}, Unit{"kB", kK}, Unit{"MB", kM}, Unit{"GB", kG},
                                       Unit{"TB", kT}};
  const Unit* binary = nullptr;
  for (const Unit& unit : kBinary) {
    if (bytes >= unit.scale) binary = &unit;
  }
  // Quarters of a unit are what people configure and what allocators round to.
  if (binary != nullptr && bytes % (binary->scale / 4) == 0) {
    const auto hundredths = bytes / (binary->scale / 4) % 4 * 25;
    std::string text = std::to_string(bytes / binary->scale);
    if (hundredths != 0) text += hundredths == 50 ? ".5" : hundredths == 25 ? ".25" : ".75";
    return (text += ' ') += binary->name;
  }
  for (const Unit& unit : kDecimal) {
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.scale);
    if (value < 999.5) return three_digits(value) + ' ' + std::string(unit.name);
  }
  return std::to_string(bytes / kT) + " TB";
}

std::string format_duration(std::chrono::nanoseconds duration) {
  struct Step {
    std::string_view name;
    double scale;
    double below;  // the next unit is used from here on
  };
  // Up to two of the next unit read better in the smaller one: "90 s", "100 min".
  static constexpr std::array kSteps{Step{"ns", 1.0, 999.5},   Step{"\u00b5s", 1e3, 999.5},
                                     Step{"ms", 1e6, 999.5},   Step{"s", 1e9, 119.5},
                                     Step{"min", 60e9, 119.5}, Step{"h", 3600e9, 47.5}};
  const auto count = static_cast<double>(duration.count());
  const std::string sign = count < 0 ? "-" : "";
  const double length = std::fabs(count);
  for (const Step& step : kSteps) {
    if (length / step.scale < step.below) {
      return sign + three_digits(length / step.scale) + ' ' + std::string(step.name);
    }
  }
  const double days = length / static_cast<double>(kDay);
  return sign + (days < 999.5 ? three_digits(days) : std::to_string(std::llround(days))) + " d";
}

std::string exact_size(std::uint64_t bytes) {
  static constexpr std::array kUnits{Unit{"", 1},      Unit{"kB", kK},   Unit{"KiB", kKi},
                                     Unit{"MB", kM},   Unit{"MiB", kMi}, Unit{"GB", kG},
                                     Unit{"GiB", kGi}, Unit{"TB", kT},   Unit{"TiB", kTi}};
  return exact(bytes, kUnits);
}

std::string exact_duration(std::chrono::nanoseconds duration) {
  static constexpr std::array kUnits{Unit{"ns", 1},      Unit{"us", kMicrosecond}, Unit{"ms", kMillisecond},
                                     Unit{"s", kSecond}, Unit{"min", kMinute},     Unit{"h", kHour},
                                     Unit{"d", kDay}};
  if (duration.count() == 0) return "0 s";
  if (duration.count() > 0) return exact(static_cast<std::uint64_t>(duration.count()), kUnits);
  // Negated as unsigned, so that the most negative value is not undefined.
  return std::string("-").append(
      exact(std::uint64_t{0} - static_cast<std::uint64_t>(duration.count()), kUnits));
}

}  // namespace stagewire
