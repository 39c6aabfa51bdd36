// The thread of an RDMA device for calls that may block: queue pairs (RoCE resolves addresses in them),
// registrations. Tasks run in order. A task that takes longer than the limit is reported and its thread
// abandoned, so that the others go on without it. Thread-safe; owned by the device.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "base/unique_function.h"

namespace stagewire {

class DeviceHelper {
 public:
  /// The thread starts with the first task. `name` (≤ 15 characters) names it for debuggers.
  DeviceHelper(std::string name, std::chrono::milliseconds limit, std::shared_ptr<Logger> log);
  ~DeviceHelper();
  DeviceHelper(const DeviceHelper&) = delete;
  DeviceHelper& operator=(const DeviceHelper&) = delete;

  /// Runs `task` after those posted before; dropped after stop(). `what` stands in the report of a hang.
  void post(std::string what, UniqueFunction<void()> task);
  /// Abandons the running task if it is over its limit. Called by whoever waited too long for a result, and
  /// by post().
  void check();
  /// Runs what is queued, waiting up to the limit for each task, then ends the thread. Idempotent.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  ForkGuard fork_guard_;
};

}  // namespace stagewire
