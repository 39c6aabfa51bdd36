// The table of options: the one place that says which exist, what they are called, what they mean and which
// values they take. The rows are constants; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <stagewire/base/config.h>

namespace stagewire::config {

/// The field of NodeConfig that a row fills. The default is what the field of a fresh NodeConfig holds.
using Field = std::variant<bool NodeConfig::*, std::uint32_t NodeConfig::*, std::uint64_t NodeConfig::*,
                           std::chrono::nanoseconds NodeConfig::*, std::string NodeConfig::*,
                           std::vector<std::string> NodeConfig::*>;

/// One option. `minimum` and `maximum` bound numbers alone: counts, bytes or nanoseconds, as the field says.
struct Row {
  std::string_view name;
  Field field;
  std::string_view doc;
  std::uint64_t minimum = 0;
  std::uint64_t maximum = 0;
  std::span<const std::string_view> choices = {};
  bool secret = false;

  OptionType type() const noexcept;
};

std::span<const Row> rows() noexcept;
/// The row of this name, or nullptr.
const Row* find_row(std::string_view name) noexcept;
/// The option whose name is nearest to `name`, if it is near enough to be what was meant; else empty.
std::string_view nearest_name(std::string_view name);
/// "STAGEWIRE_" and the name in upper case.
std::string environment_name(std::string_view name);

/// The field's value as text that set_option() takes: lists joined with commas.
std::string value_text(const Row& row, const NodeConfig& config);
/// A bound in the row's own unit.
std::string bound_text(const Row& row, std::uint64_t bound);
/// "a size from 1 MiB to 16 TiB", "one of auto, local, shm, tcp", …
std::string expectation(const Row& row);

}  // namespace stagewire::config
