// Logger: levels, the form of a line, what a sink is given, and messages that try to forge lines.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stagewire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Pair;

using Lines = std::vector<std::pair<LogLevel, std::string>>;

TEST(LogLevelTest, NamesGoThereAndBack) {
  for (const std::string_view name : {"trace", "debug", "info", "warn", "error", "off"}) {
    EXPECT_EQ(to_string(parse_log_level(name).value()), name);
  }
  const auto wrong = parse_log_level("warning");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind(), ErrorKind::config);
  EXPECT_THAT(wrong.error().message(), HasSubstr("expected trace, debug, info, warn, error or off"));
  EXPECT_FALSE(parse_log_level(""));
  EXPECT_FALSE(parse_log_level("WARN"));
}

TEST(LoggerTest, PassesLinesAtOrAboveTheLevel) {
  Lines lines;
  const auto logger = Logger::create("n", LogLevel::info, [&](LogLevel level, std::string_view message) {
    lines.emplace_back(level, message);
  });
  logger->debug("hidden");
  logger->info("a");
  logger->error("b");
  logger->set_level(LogLevel::off);
  logger->error("hidden");
  logger->log(LogLevel::off, "hidden");
  logger->set_level(LogLevel::trace);
  logger->log(LogLevel::trace, "c");
  EXPECT_THAT(lines,
              ElementsAre(Pair(LogLevel::info, "a"), Pair(LogLevel::error, "b"), Pair(LogLevel::trace, "c")));
}

TEST(LoggerTest, EnabledFollowsTheLevel) {
  const auto logger = Logger::create("n", LogLevel::warn);
  EXPECT_FALSE(logger->enabled(LogLevel::info));
  EXPECT_TRUE(logger->enabled(LogLevel::warn));
  EXPECT_FALSE(logger->enabled(LogLevel::off));
}

TEST(LoggerTest, WritesPlainLinesToStandardError) {
  testing::internal::CaptureStderr();
  {
    const auto logger = Logger::create("stage-a", LogLevel::info);
    logger->warn("route tcp to {10.0.0.2}: %s");
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+.[0-9][0-9][0-9] W stagewire.stage-a.: "
                           "route tcp to .10.0.0.2.: %s\n"));
}

TEST(LoggerTest, ControlCharactersCannotForgeLines) {
  Lines lines;
  const auto logger = Logger::create("n", LogLevel::info, [&](LogLevel level, std::string_view message) {
    lines.emplace_back(level, message);
  });
  logger->warn("key a\nfake line\x1b[2J \u00b5s");
  EXPECT_THAT(lines, ElementsAre(Pair(LogLevel::warn, "key a\\x0afake line\\x1b[2J \u00b5s")));
}

TEST(LoggerTest, ASinkThatThrowsDoesNotReachTheCaller) {
  const auto logger = Logger::create("n", LogLevel::info,
                                     [](LogLevel, std::string_view) { throw std::runtime_error("full"); });
  logger->error("x");
  SUCCEED();
}

TEST(LoggerTest, ThreadsDoNotMixTheirLines) {
  testing::internal::CaptureStderr();
  const auto logger = Logger::create("n", LogLevel::info);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) logger->info("0123456789");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = testing::internal::GetCapturedStderr();
  std::size_t lines = 0;
  for (std::size_t at = text.find("0123456789\n"); at != std::string::npos;
       at = text.find("0123456789\n", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 200U);
}

}  // namespace
}  // namespace stagewire
