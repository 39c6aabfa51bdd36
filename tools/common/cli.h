// What all subcommands share: exit codes, the node options of the command line, and progress on stderr.
// Values and functions of the main thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <stagewire/base/config.h>
#include <stagewire/base/result.h>

namespace stagewire::tools {

/// Exit codes, the same for every subcommand.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   ///< what was checked is not as it should be
inline constexpr int kExitUsage = 2;    ///< the command line or the configuration is wrong
inline constexpr int kExitRuntime = 3;  ///< something went wrong while running

/// Options by name, as text.
using OptionList = std::vector<std::pair<std::string, std::string>>;

/// How the user configures a node on the command line.
struct NodeSettings {
  std::string config_file;       ///< --config; empty: none
  std::vector<std::string> set;  ///< --set, each "key=value"
};

/// The node's configuration: the library's defaults, overridden by `base` (what a subcommand needs), the
/// file, the environment and --set, in this order. Errors: config.
Result<NodeConfig> node_config(const NodeSettings& settings, const OptionList& base = {});

/// Prints an error to stderr and returns the exit code that fits its kind.
int report_error(const Error& error);

/// Says on stderr what is going on: one line that is overwritten on a terminal, full lines with `forced`, and
/// nothing else.
class Progress {
 public:
  explicit Progress(bool forced);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void say(const std::string& text);

 private:
  bool terminal_;
  bool forced_;
  std::string last_;
};

}  // namespace stagewire::tools
