#include "base/event_loop.h"

#include <atomic>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace stagewire {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kGuard{30};

/// Runs `task` on the loop and waits for it.
void on_loop(EventLoop& loop, EventLoop::Task task) {
  std::promise<void> ran;
  loop.post([&] {
    task();
    ran.set_value();
  });
  ASSERT_EQ(ran.get_future().wait_for(kGuard), std::future_status::ready);
}

/// Says when it is destroyed.
struct Token {
  explicit Token(std::atomic<int>& count) : destroyed(&count) {}
  Token(Token&& other) noexcept : destroyed(std::exchange(other.destroyed, nullptr)) {}
  Token& operator=(Token&&) = delete;
  ~Token() {
    if (destroyed != nullptr) ++*destroyed;
  }
  std::atomic<int>* destroyed;
};

TEST(EventLoop, RunsWhatEachThreadPostsInItsOrder) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  EventLoop loop("test");
  ASSERT_TRUE(loop.ready().ok());
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&loop, &seen, t] {
      for (int i = 0; i < kTasks; ++i) {
        loop.post([&seen, t, i] { seen[static_cast<std::size_t>(t)].push_back(i); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  on_loop(loop, [] {});
  for (const std::vector<int>& order : seen) {
    ASSERT_EQ(order.size(), static_cast<std::size_t>(kTasks));
    for (int i = 0; i < kTasks; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(EventLoop, ATaskMayPostAndRunsAfterWhatWasThereBefore) {
  EventLoop loop("test");
  std::vector<int> order;
  std::promise<void> over;
  on_loop(loop, [&] {
    EXPECT_TRUE(loop.on_loop_thread());
    loop.post([&] {
      order.push_back(1);
      loop.post([&] {
        order.push_back(3);
        over.set_value();
      });
    });
    loop.post([&] { order.push_back(2); });
  });
  ASSERT_EQ(over.get_future().wait_for(kGuard), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_FALSE(loop.on_loop_thread());
}

TEST(EventLoop, WhatATaskHoldsGoesBeforeTheNextTaskRuns) {
  EventLoop loop("test");
  std::atomic<int> destroyed{0};
  std::atomic<int> seen{-1};
  std::promise<void> go;
  loop.post([&go] { go.get_future().wait(); });  // so that the two below are one batch
  loop.post([token = Token(destroyed)] {});
  loop.post([&] { seen = destroyed.load(); });
  go.set_value();
  on_loop(loop, [] {});
  EXPECT_EQ(seen, 1);
}

TEST(EventLoop, WhatIsPostedAfterStopIsDroppedAndDestroyed) {
  std::atomic<int> destroyed{0};
  std::atomic<int> ran{0};
  {
    EventLoop loop("test");
    loop.stop();
    loop.post([&ran, token = Token(destroyed)] { ++ran; });
    loop.stop();
  }
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(destroyed, 1);
}

TEST(EventLoop, StopEndsAfterTheTaskThatRuns) {
  std::atomic<int> destroyed{0};
  std::atomic<int> ran{0};
  {
    EventLoop loop("test");
    std::promise<void> runs;
    std::promise<void> go;
    loop.post([&] {
      runs.set_value();
      go.get_future().wait();
    });
    for (int i = 0; i < 100; ++i) loop.post([&ran, token = Token(destroyed)] { ++ran; });
    runs.get_future().wait();
    std::thread stopper([&loop] { loop.stop(); });
    go.set_value();
    stopper.join();
  }
  EXPECT_LE(ran, 100) << "how many ran is a race";
  EXPECT_EQ(destroyed, 100);
}

TEST(EventLoop, ADroppedTaskMayPostWhileItIsDestroyed) {
  std::atomic<int> destroyed{0};
  {
    EventLoop loop("test");
    loop.stop();
    struct Poster {
      Poster(EventLoop& to, std::atomic<int>& count) : loop(&to), destroyed(&count) {}
      Poster(Poster&& other) noexcept
          : loop(std::exchange(other.loop, nullptr)), destroyed(other.destroyed) {}
      Poster& operator=(Poster&&) = delete;
      ~Poster() {
        if (loop != nullptr) loop->post([token = Token(*destroyed)] {});
      }
      EventLoop* loop;
      std::atomic<int>* destroyed;
    };
    loop.post([poster = Poster(loop, destroyed)] {});
  }
  EXPECT_EQ(destroyed, 1);
}

TEST(EventLoop, TimersRunInTheirOrderAndCancelledOnesDoNot) {
  EventLoop loop("test");
  std::vector<int> order;
  std::promise<void> over;
  on_loop(loop, [&] {
    loop.call_at(Deadline::in(milliseconds(30)), [&] {
      order.push_back(3);
      over.set_value();
    });
    loop.call_at(Deadline::in(milliseconds(10)), [&] { order.push_back(1); });
    const EventLoop::TimerId never =
        loop.call_at(Deadline::in(milliseconds(15)), [&] { order.push_back(0); });
    loop.call_at(Deadline::in(milliseconds(20)), [&] { order.push_back(2); });
    loop.cancel(never);
    loop.cancel(never);
    loop.cancel(0);
  });
  ASSERT_EQ(over.get_future().wait_for(kGuard), std::future_status::ready);
  on_loop(loop, [&] { EXPECT_EQ(order, (std::vector<int>{1, 2, 3})); });
}

TEST(EventLoop, AWatchSeesWhatCanBeReadUntilItIsDestroyed) {
  EventLoop loop("test");
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  std::unique_ptr<FdWatch> watch;
  std::promise<char> got;
  on_loop(loop, [&] {
    watch = loop.watch(
        ends[0],
        [&] {
          char byte = 0;
          EXPECT_EQ(::read(ends[0], &byte, 1), 1);
          got.set_value(byte);
        },
        [] {});
  });
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  std::future<char> byte = got.get_future();
  ASSERT_EQ(byte.wait_for(kGuard), std::future_status::ready);
  EXPECT_EQ(byte.get(), 'x');
  on_loop(loop, [&] { watch.reset(); });
  ASSERT_EQ(::write(ends[1], "y", 1), 1);
  on_loop(loop, [] {});  // a second call would set the promise again and throw
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(EventLoop, AHandlerCanRunWhatOthersHadPostedButNotItsOwn) {
  EventLoop loop("test-loop");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::unique_ptr<FdWatch> watch;
  std::vector<std::string> seen;
  std::promise<void> own_ran;
  on_loop(loop, [&] {
    watch = loop.watch(
        ends[0],
        [&] {
          char byte = 0;
          EXPECT_EQ(::read(ends[0], &byte, 1), 1);
          loop.post([&] {
            seen.emplace_back("own");
            own_ran.set_value();
          });
          std::thread other([&] { loop.post([&] { seen.emplace_back("other's"); }); });
          other.join();
          loop.run_posted();
          seen.emplace_back("handler");
        },
        [] {});
  });
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  ASSERT_EQ(own_ran.get_future().wait_for(kGuard), std::future_status::ready);
  on_loop(loop, [&] {
    EXPECT_EQ(seen, (std::vector<std::string>{"other's", "handler", "own"}));
    watch.reset();
  });
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(EventLoop, StopDropsWhatHasNotRun) {
  EventLoop loop("test-loop");
  std::atomic<int> destroyed{0};
  std::promise<void> stopping;
  loop.post([&] { stopping.get_future().wait(); });
  loop.post([token = Token(destroyed)] {});
  std::thread stopper([&] { loop.stop(); });
  // Which of the two comes first does not matter: the token goes by the end of stop() either way.
  stopping.set_value();
  stopper.join();
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
}  // namespace stagewire
