// Mailbox: how threads that may outlive the node (the holder of a view, a transport's completion) reach its
// loop. Posting after the node has closed is harmless and says so. Thread-safe; shared.
#pragma once

#include <mutex>
#include <utility>

#include "base/event_loop.h"
#include "base/fd.h"

namespace stagewire {

class Mailbox {
 public:
  explicit Mailbox(EventLoop& loop) : loop_(&loop) {}

  /// False if the node has closed (or this is a forked child): the task was dropped.
  bool post(EventLoop::Task task) {
    if (fork_guard_.forked()) return false;
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) return false;
    loop_->post(std::move(task));
    return true;
  }
  bool closed() {
    const std::lock_guard lock(mutex_);
    return loop_ == nullptr;
  }
  /// From here on posts are dropped.
  void close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  EventLoop* loop_;
  ForkGuard fork_guard_;
};

}  // namespace stagewire
