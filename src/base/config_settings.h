// What every source of configuration (dict, YAML, environment) is turned into before it touches a NodeConfig.
// Values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/config.h>

namespace stagewire::config {

/// One option as a source gave it.
struct Setting {
  std::string name;
  ConfigValue value;
  std::string where;  ///< stands in front of errors, e.g. "node.yaml, line 3"; empty: nothing to say
};

/// Sets all of one source's options, or none on an Error. Unknown and repeated names are errors.
Status apply_settings(NodeConfig& config, const std::vector<Setting>& settings);

/// An Error of kind config: "<where>: <what>".
Error config_error(std::string_view where, std::string what);
/// `text` as it may stand in a message: short, printable, in quotes.
std::string shown(std::string_view text);

}  // namespace stagewire::config
