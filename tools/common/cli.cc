// See cli.h.
#include "common/cli.h"

#include <cstdio>
#include <unistd.h>

namespace stagewire::tools {

Result<NodeConfig> node_config(const NodeSettings& settings, const OptionList& base) {
  NodeConfig config;
  for (const auto& [name, value] : base) STAGEWIRE_TRY(set_option(config, name, value));
  if (!settings.config_file.empty()) STAGEWIRE_TRY(apply_yaml_file(config, settings.config_file));
  STAGEWIRE_TRY(apply_environment(config));
  for (const std::string& item : settings.set) {
    const std::size_t split = item.find('=');
    if (split == std::string::npos || split == 0) {
      return Error(ErrorKind::config,
                   "--set '" + item + "': expected key=value, for example --set " +
                       "publish_pool_size=4GiB (stagewire explain --config-table lists the keys)");
    }
    STAGEWIRE_TRY(set_option(config, item.substr(0, split), item.substr(split + 1)));
  }
  STAGEWIRE_TRY(validate(config));
  return config;
}

int report_error(const Error& error) {
  std::fprintf(stderr, "stagewire: %s\n", error.to_string().c_str());
  const bool usage = error.kind() == ErrorKind::config || error.kind() == ErrorKind::invalid_argument ||
                     error.kind() == ErrorKind::auth_failed;
  return usage ? kExitUsage : kExitRuntime;
}

Progress::Progress(bool forced) : terminal_(::isatty(STDERR_FILENO) == 1), forced_(forced) {}

Progress::~Progress() {
  if (terminal_ && !last_.empty()) std::fprintf(stderr, "\r\033[K");
}

void Progress::say(const std::string& text) {
  if (text == last_) return;
  last_ = text;
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
  } else if (forced_ && !text.empty()) {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

}  // namespace stagewire::tools
