// The helper thread of a device: order, and what becomes of a call that hangs.
#include "transport/verbs/device_helper.h"

#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <stagewire/base/deadline.h>

#include "../support.h"

namespace stagewire::testing_support {
namespace {

/// Keeps what was logged.
struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::shared_ptr<Logger> log =
      Logger::create("test", LogLevel::debug, [this](LogLevel, std::string_view line) {
        const std::lock_guard lock(mutex);
        lines.emplace_back(line);
      });
};

TEST(DeviceHelper, RunsInOrderAndFinishesBeforeItStops) {
  Lines lines;
  std::vector<int> ran;
  DeviceHelper helper("helper", std::chrono::minutes(1), lines.log);
  for (int i = 0; i < 100; ++i) helper.post("counting", [&ran, i] { ran.push_back(i); });
  helper.stop();
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
  helper.post("too late", [&ran] { ran.clear(); });
  EXPECT_EQ(ran.size(), 100U);
  EXPECT_TRUE(lines.lines.empty());
}

TEST(DeviceHelper, GoesOnWithoutACallThatHangs) {
  Lines lines;
  Once<bool> gate;
  Once<bool> hung_ended;
  Once<bool> next_ran;
  DeviceHelper helper("helper", std::chrono::milliseconds(1), lines.log);
  Once<bool> began;
  helper.post("a call that hangs", [&] {
    began.set(true);
    gate.wait();
    hung_ended.set(true);
  });
  began.wait();
  helper.post("the next", [&] { next_ran.set(true); });
  const Deadline deadline = Deadline::in(kHangGuard);
  while (!next_ran.happened() && !deadline.passed()) {
    helper.check();
    std::this_thread::yield();
  }
  EXPECT_TRUE(next_ran.happened());
  EXPECT_FALSE(hung_ended.happened());
  gate.set(true);
  hung_ended.wait();
  helper.stop();
  const std::lock_guard lock(lines.mutex);
  ASSERT_FALSE(lines.lines.empty());
  EXPECT_NE(lines.lines[0].find("a call that hangs"), std::string::npos) << lines.lines[0];
}

TEST(DeviceHelper, StopDoesNotWaitForACallThatHangs) {
  Lines lines;
  const auto gate = std::make_shared<Once<bool>>();
  const auto ended = std::make_shared<Once<bool>>();
  Once<bool> began;
  {
    DeviceHelper helper("helper", std::chrono::milliseconds(1), lines.log);
    helper.post("a call that hangs", [gate, ended, &began] {
      began.set(true);
      gate->wait();
      ended->set(true);
    });
    began.wait();
  }
  EXPECT_FALSE(ended->happened());
  gate->set(true);
  ended->wait();
}

}  // namespace
}  // namespace stagewire::testing_support
