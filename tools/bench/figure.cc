// See figure.h.
#include "bench/figure.h"

#include <cstdio>

#include "bench/stats.h"

namespace stagewire::tools {

namespace {

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3g", value);
  return text;
}

std::string with_unit(double value, const std::string& unit) {
  if (unit == "s" && value < 1) return time_text(value);
  return number_text(value) + (unit.empty() ? "" : " " + unit);
}

}  // namespace

std::string Target::text() const {
  return (side == Side::at_least ? "≥ " : "≤ ") + with_unit(value, unit);
}

Json Figure::json() const {
  Json json = Json::object();
  json.set("case", case_name).set("work", work).set("measured", measured).set("baseline", beside);
  json.set("value", value);
  if (target) {
    json.set("target", target->value);
    json.set("target_is", target->side == Target::Side::at_least ? "at least" : "at most");
    json.set("unit", target->unit == "×" ? "ratio" : target->unit);
    json.set("met", met());
  }
  json.set("detail", detail);
  return json;
}

std::size_t columns(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++count;
  }
  return count;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  std::string cut;
  std::size_t count = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U && ++count > width) break;
    cut += c;
  }
  const std::string fill(width - std::min(width, count), ' ');
  return right ? fill + cut : cut + fill;
}

std::string figure_table(const std::vector<Figure>& figures) {
  constexpr std::size_t kWork = 41;
  constexpr std::size_t kMeasured = 9;
  constexpr std::size_t kBeside = 23;
  constexpr std::size_t kFigure = 9;
  std::string table = "  " + padded("work", kWork) + "  " + padded("measured", kMeasured, true) + "  " +
                      padded("beside it", kBeside) + "  " + padded("figure", kFigure, true) + "  target\n";
  for (const Figure& figure : figures) {
    table += !figure.target ? "  " : figure.met() ? "✓ " : "✗ ";
    table += padded(figure.work, kWork) + "  " + padded(figure.measured, kMeasured, true) + "  " +
             padded(figure.beside, kBeside) + "  " +
             padded(with_unit(figure.value, figure.target ? figure.target->unit : "×"), kFigure, true);
    if (figure.target) table += "  " + figure.target->text();
    table += '\n';
  }
  return table;
}

}  // namespace stagewire::tools
