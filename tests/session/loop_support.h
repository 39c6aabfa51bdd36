// What the session tests with sockets share: running things on a loop's thread, and waiting for them. Header
// only; any thread.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "session/connection.h"

namespace stagewire::test {

/// No wait is longer: beyond it something hangs.
inline constexpr std::chrono::seconds kLoopGuard{60};

/// Runs `function` on the loop's thread and waits for its result.
template <typename F>
auto on_loop(EventLoop& loop, F function) {
  using T = decltype(function());
  std::packaged_task<T()> task(std::move(function));
  auto result = task.get_future();
  loop.post([shared = std::make_shared<std::packaged_task<T()>>(std::move(task))] { (*shared)(); });
  if (result.wait_for(kLoopGuard) != std::future_status::ready) std::abort();
  return result.get();
}

/// Values that callbacks leave and the test waits for.
template <typename T>
class Collected {
 public:
  void add(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  /// Waits until there are `count`; gives a copy of all.
  std::vector<T> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLoopGuard, [&] { return values_.size() >= count; }))
        << values_.size() << " of " << count << " came";
    return values_;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> values_;
};

inline std::pair<Fd, Fd> socket_pair() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace stagewire::test
