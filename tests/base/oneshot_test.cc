// Oneshot: hand-over between threads, deadlines, signals, eventfd, continuation, abandonment.
#include "base/oneshot.h"

#include <array>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

namespace stagewire {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Long enough never to be the reason that a test passes; a bug shows as a hang guard's failure.
Deadline far() {
  return Deadline::in(seconds(60));
}

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

TEST(OneshotTest, HandsOverAValueGivenBefore) {
  auto [promise, future] = Oneshot<std::string>::make();
  EXPECT_FALSE(future.ready());
  EXPECT_EQ(future.try_take(), std::nullopt);
  EXPECT_TRUE(promise);
  EXPECT_TRUE(promise.set("x"));
  EXPECT_FALSE(promise);
  EXPECT_TRUE(future.ready());
  EXPECT_TRUE(future.wait(Deadline::now()));
  EXPECT_EQ(future.try_take(), "x");
  EXPECT_EQ(future.try_take(), std::nullopt);
  EXPECT_TRUE(future.wait(Deadline::now())) << "a taken value was given all the same";
}

TEST(OneshotTest, TheSecondValueIsRefused) {
  auto [promise, future] = Oneshot<int>::make();
  EXPECT_TRUE(promise.set(1));
  EXPECT_FALSE(promise.set(2));
  EXPECT_EQ(future.try_take(), 1);
}

TEST(OneshotTest, HandsOverMoveOnlyValuesAndResults) {
  auto [promise, future] = Oneshot<Result<std::unique_ptr<int>>>::make();
  promise.set(std::make_unique<int>(7));
  auto taken = future.try_take();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken->value(), 7);
}

TEST(OneshotTest, TheDeadlineEndsTheWaitAndTheValueMayComeLater) {
  auto [promise, future] = Oneshot<int>::make();
  for (const Deadline deadline : {Deadline::now(), Deadline::in(milliseconds(2)), Deadline::in(-seconds(1)),
                                  Deadline(Deadline::Clock::time_point(-seconds(5)))}) {
    EXPECT_EQ(future.wait(deadline).error().kind(), ErrorKind::deadline_exceeded);
  }
  EXPECT_EQ(future.wait(Deadline::in(milliseconds(1)), hours(1)).error().kind(), ErrorKind::deadline_exceeded)
      << "spinning keeps the deadline";
  promise.set(3);
  EXPECT_TRUE(future.wait(far()));
  EXPECT_EQ(future.try_take(), 3);
}

TEST(OneshotTest, ADroppedPromiseEndsTheWait) {
  auto [promise, future] = Oneshot<int>::make();
  std::thread dropper([taken = std::move(promise)]() mutable { const auto dropped = std::move(taken); });
  const Status status = future.wait(far());
  dropper.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind(), ErrorKind::closed);
  EXPECT_TRUE(future.finished());
  EXPECT_FALSE(future.ready());
  EXPECT_EQ(future.try_take(), std::nullopt);
}

TEST(OneshotTest, AssigningAPromiseAbandonsTheOldFuture) {
  auto first = Oneshot<int>::make();
  auto second = Oneshot<int>::make();
  first.promise = std::move(second.promise);
  EXPECT_EQ(first.future.wait(far()).error().kind(), ErrorKind::closed);
  EXPECT_FALSE(second.future.finished());
  EXPECT_TRUE(first.promise.set(4));
  EXPECT_EQ(second.future.try_take(), 4);
}

TEST(OneshotTest, TheFutureMayGoFirst) {
  auto value = std::make_shared<int>(1);
  std::weak_ptr<int> watch = value;
  {
    auto pair = Oneshot<std::shared_ptr<int>>::make();
    pair.future = {};
    EXPECT_FALSE(pair.future);
    EXPECT_TRUE(pair.promise.set(std::move(value)));
  }
  EXPECT_TRUE(watch.expired()) << "a value that nobody took is freed";
}

TEST(OneshotTest, SleepersWakeAndOneOfThemTakes) {
  for (int round = 0; round < 50; ++round) {
    auto [promise, future] = Oneshot<int>::make();
    std::atomic<int> woken{0};
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&woken, &taken, shared = future, t] {
        const Status status = shared.wait(far(), t % 2 == 0 ? microseconds(50) : microseconds(0));
        if (status) ++woken;
        if (shared.try_take() == 9) ++taken;
      });
    }
    promise.set(9);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(woken, 4);
    EXPECT_EQ(taken, 1);
  }
}

TEST(OneshotTest, PingPongBetweenTwoThreads) {
  constexpr int kRounds = 2000;
  std::vector<Oneshot<int>> there;
  std::vector<Oneshot<int>> back;
  for (int i = 0; i < kRounds; ++i) {
    there.push_back(Oneshot<int>::make());
    back.push_back(Oneshot<int>::make());
  }
  std::thread other([&] {
    for (std::size_t i = 0; i < kRounds; ++i) {
      if (!there[i].future.wait(far())) return;
      back[i].promise.set(*there[i].future.try_take() + 1);
    }
  });
  for (std::size_t i = 0; i < kRounds; ++i) {
    there[i].promise.set(static_cast<int>(i));
    ASSERT_TRUE(back[i].future.wait(far(), microseconds(i % 3 == 0 ? 20 : 0)));
    ASSERT_EQ(back[i].future.try_take(), static_cast<int>(i) + 1);
  }
  other.join();
}

TEST(OneshotTest, TheEventfdBecomesReadableWheneverItIsMade) {
  auto early = Oneshot<int>::make();
  const int fd = early.future.event_fd().value();
  EXPECT_EQ(early.future.event_fd().value(), fd);
  EXPECT_FALSE(readable(fd));
  early.promise.set(1);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(early.future.try_take(), 1);
  EXPECT_TRUE(readable(fd));

  auto late = Oneshot<int>::make();
  late.promise.set(1);
  EXPECT_TRUE(readable(late.future.event_fd().value()));

  auto abandoned = Oneshot<int>::make();
  const int watched = abandoned.future.event_fd().value();
  abandoned.promise = {};
  EXPECT_TRUE(readable(watched));
}

TEST(OneshotTest, TheContinuationRunsOnceWhenTheValueComes) {
  auto [promise, future] = Oneshot<int>::make();
  int runs = 0;
  std::optional<int> seen;
  future.then([&, shared = future] {
    ++runs;
    seen = shared.try_take();
  });
  EXPECT_EQ(runs, 0);
  promise.set(5);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(seen, 5);
}

TEST(OneshotTest, TheContinuationRunsAtOnceWhenTheValueWasThere) {
  auto [promise, future] = Oneshot<int>::make();
  promise.set(5);
  bool ran = false;
  future.then([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(OneshotTest, TheContinuationRunsOnAbandonmentAndItsCapturesAreFreed) {
  auto pair = Oneshot<int>::make();
  auto captured = std::make_shared<int>(0);
  std::weak_ptr<int> watch = captured;
  pair.future.then([captured = std::move(captured), future = pair.future,
                    move_only = std::make_unique<int>(1)] { *captured += *move_only; });
  EXPECT_FALSE(watch.expired());
  pair.promise = {};
  EXPECT_TRUE(watch.expired());
}

TEST(OneshotTest, ContinuationsAndEventsRaceWithTheValueAndFireOnce) {
  for (int round = 0; round < 500; ++round) {
    auto [promise, future] = Oneshot<int>::make();
    std::atomic<int> runs{0};
    std::thread setter([&given = promise] { given.set(1); });
    future.then([&] { ++runs; });
    const int fd = future.event_fd().value();
    EXPECT_TRUE(future.wait(far()));
    setter.join();
    EXPECT_EQ(runs, 1);
    EXPECT_TRUE(readable(fd));
  }
}

TEST(OneshotDeathTest, ASecondContinuationAborts) {
  auto [promise, future] = Oneshot<int>::make();
  future.then([] {});
  EXPECT_DEATH(future.then([] {}), "");
}

void on_signal(int) {}

// Signals the waiting thread until it says that it has come back, so that no signal can be sent too early.
template <typename Wait>
void wait_under_signals(const Wait& wait) {
  struct sigaction action{};
  action.sa_handler = &on_signal;
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    wait();
    done = true;
  });
  while (!done) {
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  waiter.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST(OneshotTest, ASignalInterruptsAWaitThatAsksForIt) {
  auto [promise, future] = Oneshot<int>::make();
  wait_under_signals([&waited = future] {
    const Status status = waited.wait(far(), nanoseconds(0), OnSignal::give_up);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind(), ErrorKind::interrupted);
  });
  promise.set(1);
  EXPECT_TRUE(future.wait(far()));
}

TEST(OneshotTest, ASignalDoesNotEndAnOrdinaryWait) {
  auto [promise, future] = Oneshot<int>::make();
  wait_under_signals([&waited = future] {
    EXPECT_EQ(waited.wait(Deadline::in(milliseconds(20))).error().kind(), ErrorKind::deadline_exceeded);
  });
  promise.set(1);
}

}  // namespace
}  // namespace stagewire
