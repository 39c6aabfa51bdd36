// Logger over spdlog, in this file alone. Any thread may log; the sink serializes the lines. Owned by the
// node through a shared pointer; spdlog's registry (global state) is not used.
#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <utility>

#include "base/fd.h"

namespace stagewire {

namespace {

constexpr std::array<std::string_view, 6> kLevelNames{"trace", "debug", "info", "warn", "error", "off"};

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

bool is_control(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20U || byte == 0x7fU;
}

// Messages quote keys and names that came from peers: a line break or an escape sequence in one must not be
// able to forge a log line or drive a terminal.
std::string escape_controls(std::string_view message) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  line.reserve(message.size() + 16);
  for (const char c : message) {
    if (!is_control(c)) {
      line += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    line += "\\x";
    line += kDigits[byte >> 4U];
    line += kDigits[byte & 15U];
  }
  return line;
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  const auto index = static_cast<std::size_t>(level);
  return index < kLevelNames.size() ? kLevelNames[index] : "unknown";
}

Result<LogLevel> parse_log_level(std::string_view text) {
  const auto* const found = std::find(kLevelNames.begin(), kLevelNames.end(), text);
  if (found != kLevelNames.end()) return static_cast<LogLevel>(found - kLevelNames.begin());
  return Error(ErrorKind::config, "unknown log level '" + escape_controls(text.substr(0, 64)) +
                                      "'; expected trace, debug, info, warn, error or off");
}

struct Logger::State {
  std::atomic<LogLevel> level;
  Sink sink;
  std::unique_ptr<spdlog::logger> console;
  // The console's mutex may have been held by another thread at the moment of a fork, so a child's lines are
  // dropped rather than waited for.
  ForkGuard fork;

  void write(LogLevel at, std::string_view line) {
    if (sink) {
      sink(at, line);
    } else {
      console->log(to_spdlog(at), spdlog::string_view_t(line.data(), line.size()));
    }
  }
};

Logger::Logger(std::unique_ptr<State> state) : state_(std::move(state)) {}
Logger::~Logger() = default;

std::shared_ptr<Logger> Logger::create(std::string_view name, LogLevel level, Sink sink) {
  auto state = std::make_unique<State>();
  state->level.store(level, std::memory_order_relaxed);
  state->sink = std::move(sink);
  if (!state->sink) {
    state->console = std::make_unique<spdlog::logger>(escape_controls(name),
                                                      std::make_shared<spdlog::sinks::stderr_sink_mt>());
    state->console->set_pattern("%Y-%m-%d %H:%M:%S.%e %L stagewire[%n]: %v");
    state->console->set_level(spdlog::level::trace);
  }
  return std::shared_ptr<Logger>(new Logger(std::move(state)));
}

bool Logger::enabled(LogLevel level) const noexcept {
  return level != LogLevel::off && level >= state_->level.load(std::memory_order_relaxed);
}

void Logger::set_level(LogLevel level) noexcept {
  state_->level.store(level, std::memory_order_relaxed);
}

void Logger::log(LogLevel level, std::string_view message) noexcept {
  if (!enabled(level) || state_->fork.forked()) return;
  try {
    if (std::any_of(message.begin(), message.end(), is_control)) {
      state_->write(level, escape_controls(message));
    } else {
      state_->write(level, message);
    }
    // NOLINTNEXTLINE(bugprone-empty-catch): a failing sink must not end the thread; nowhere to say so.
  } catch (...) {
  }
}

}  // namespace stagewire
