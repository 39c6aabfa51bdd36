// FaultTrigger: ends or stops this process at a named fault point of its node. Header only. Armed by one
// thread, reached on the node's loop.
#pragma once

#include <csignal>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace stagewire::test {

class FaultTrigger {
 public:
  /// The next time that `point` is reached the process gets `signal` (SIGKILL or SIGSTOP).
  void arm(std::string point, int signal) {
    const std::lock_guard lock(mutex_);
    point_ = std::move(point);
    signal_ = signal;
  }
  /// The node is at `point`.
  void at(std::string_view point) {
    int signal = 0;
    {
      const std::lock_guard lock(mutex_);
      if (point != point_) return;
      point_.clear();
      signal = signal_;
    }
    // To this very thread: it does not get any further.
    ::raise(signal);
  }

 private:
  std::mutex mutex_;
  std::string point_;
  int signal_ = 0;
};

}  // namespace stagewire::test
