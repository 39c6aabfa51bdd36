// What doctor looks at, one function per check, each made by trying the thing and not by reading version
// numbers. Pure of output; main thread.
#pragma once

#include <string>
#include <vector>

#include <stagewire/base/config.h>

namespace stagewire::tools {

enum class Health : std::uint8_t {
  works,
  limited,  ///< works, but slower or less than it could
  broken,   ///< does not work, and the configuration needs it
  absent,   ///< not in this version, or not asked for
};
std::string_view to_string(Health health) noexcept;

struct Check {
  std::string name;
  Health health = Health::works;
  std::string finding;  ///< what was found, and why that is so
  std::string fix;      ///< what to do about it; empty where nothing is to be done
};

/// A transport or another part, and what it depends on.
struct CheckGroup {
  std::string name;
  std::vector<Check> checks;
  /// The worst of its checks.
  Health health() const noexcept;
};

std::vector<CheckGroup> run_checks(const NodeConfig& config);

}  // namespace stagewire::tools
