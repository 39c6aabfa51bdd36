// What a Region and its node share. See region.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <stagewire/node/region.h>

#include "base/oneshot.h"
#include "node/mailbox.h"

namespace stagewire {

class NodeCore;

/// Held by whatever may still read the region; its end is the proof that nothing does. Any thread.
struct RegionUse {
  OneshotPromise<bool> over;
  std::shared_ptr<const void> hold;

  RegionUse() = default;
  ~RegionUse() {
    hold.reset();
    over.set(true);
  }
  RegionUse(const RegionUse&) = delete;
  RegionUse& operator=(const RegionUse&) = delete;
};

struct Region::State {
  std::uint32_t memory = 0;
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
  std::string name;
  std::chrono::nanoseconds grace{0};
  NodeCore* core = nullptr;  // touched on the loop alone, which the mailbox guards
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<Logger> log;
  OneshotFuture<bool> over;
  ForkGuard fork_guard;

  std::mutex mutex;
  std::shared_ptr<const RegionUse> use;  // guarded by mutex; null once it is being closed

  std::shared_ptr<const RegionUse> take_use() {
    const std::lock_guard lock(mutex);
    return std::exchange(use, nullptr);
  }
};

}  // namespace stagewire
