// Logging. A thin front over spdlog so that its header (12.7 s a file here) stands in one .cc alone.
// Thread-safe; never called with a lock of stagewire held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <stagewire/base/result.h>

namespace stagewire {

enum class LogLevel : std::uint8_t { trace, debug, info, warn, error, off };

std::string_view to_string(LogLevel level) noexcept;
/// Errors: config, listing the levels.
Result<LogLevel> parse_log_level(std::string_view text);

/// A named logger, owned by a node and shared by its parts. Lines look like
/// "2026-01-31 12:00:00.123 W stagewire[name]: message".
class Logger {
 public:
  /// Receives each line at or above the level instead of standard error. May be called on any thread.
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  static std::shared_ptr<Logger> create(std::string_view name, LogLevel level, Sink sink = nullptr);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool enabled(LogLevel level) const noexcept;
  void set_level(LogLevel level) noexcept;
  void log(LogLevel level, std::string_view message) noexcept;
  void debug(std::string_view message) noexcept { log(LogLevel::debug, message); }
  void info(std::string_view message) noexcept { log(LogLevel::info, message); }
  void warn(std::string_view message) noexcept { log(LogLevel::warn, message); }
  void error(std::string_view message) noexcept { log(LogLevel::error, message); }

 private:
  struct State;
  explicit Logger(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stagewire
