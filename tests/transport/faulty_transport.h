// A transport that misbehaves on demand: wraps any other and drops, delays, truncates or fails reads, and can
// stop at named points, for the fault tests of what is built above transports. Links run on the loop as
// always; the plan may be changed from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace stagewire::testing_support {

/// What happens to one read.
struct Fault {
  enum class Kind : std::uint8_t {
    none,
    drop,      ///< never ends by itself; abort() and close() end it
    delay,     ///< starts only when FaultPlan::release_delayed() is called
    truncate,  ///< fills the first `bytes` bytes of the destination, then ends with `error`
    fail,      ///< ends with `error` without touching the destination
  };
  Kind kind = Kind::none;
  std::uint64_t bytes = 0;
  std::optional<Error> error;  ///< peer_lost if not given
};

/// The faults to come, shared by a test and the transport. Thread-safe.
class FaultPlan {
 public:
  /// Applies to the next read that has none yet; planned faults are used in order.
  void next_read(Fault fault);
  /// Lets delayed reads start, now and later ones at once.
  void release_delayed();

  /// Stops every read's progress at `point` ("before_done": its completion; "before_settle": the answer to an
  /// abort) until thaw(). The thread that brings the news does not wait: the news does.
  void freeze(const std::string& point);
  void thaw(const std::string& point);
  /// Waits until `count` reads in all have come to the point while it was frozen. False if they do not within
  /// a minute.
  bool wait_frozen(const std::string& point, std::size_t count);

  // For FaultyLink:
  Fault take();
  void when_released(std::function<void()> start);
  void pass(const std::string& point, std::function<void()> go_on);

 private:
  struct Point {
    bool frozen = false;
    std::size_t reached = 0;
    std::vector<std::function<void()>> held;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Fault> faults_;
  bool released_ = false;
  std::vector<std::function<void()>> delayed_;
  std::map<std::string, Point> points_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::shared_ptr<FaultPlan> plan);

  std::string_view name() const override { return inner_->name(); }
  Viability viability() const override { return inner_->viability(); }
  int rank() const override { return inner_->rank(); }
  std::string hello() const override { return inner_->hello(); }
  Result<MemoryToken> export_memory(const ExportedMemory& memory) override;
  void forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) override {
    inner_->forget_memory(memory, std::move(until));
  }
  bool can_fence() const override { return inner_->can_fence(); }
  Result<std::unique_ptr<Link>> connect(LinkChannel& channel, std::string_view peer_hello) override;
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace stagewire::testing_support
