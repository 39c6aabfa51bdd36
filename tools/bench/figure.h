// Figure: one measured value beside its baseline and its target, and the table of them. Values; main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/json.h"

namespace stagewire::tools {

/// What a figure has to be.
struct Target {
  enum class Side : std::uint8_t { at_least, at_most };
  Side side = Side::at_least;
  double value = 0;
  std::string unit;  ///< "×" for ratios, "%" or "s"; stands after figure and target

  static Target at_least(double value, std::string unit = "×") {
    return {Side::at_least, value, std::move(unit)};
  }
  static Target at_most(double value, std::string unit = "×") {
    return {Side::at_most, value, std::move(unit)};
  }
  bool met(double measured) const noexcept {
    return side == Side::at_least ? measured >= value : measured <= value;
  }
  std::string text() const;
};

struct Figure {
  std::string case_name;
  std::string work;              ///< what was done, at most 41 columns
  std::string measured;          ///< stagewire's own value, with unit
  std::string beside;            ///< the baseline of the same run, with unit
  double value = 0;              ///< what the target is about
  std::optional<Target> target;  ///< none: for information
  Json detail = Json::object();  ///< percentiles, settings, counts

  bool met() const noexcept { return !target || target->met(value); }
  Json json() const;
};

/// Aligned rows of at most 100 columns, ✓ or ✗ before each.
std::string figure_table(const std::vector<Figure>& figures);

/// Columns that text takes on a terminal; every code point counts as one.
std::size_t columns(const std::string& text);
/// Text cut or filled with spaces to `width` columns; right-aligned if asked.
std::string padded(const std::string& text, std::size_t width, bool right = false);

}  // namespace stagewire::tools
