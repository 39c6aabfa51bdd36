// PeerProcess: drives a stagewire_test_peer, a real second process with a node of its own, on this machine or
// on another: starts it, sends it commands, expects answers by a deadline, kills and stops it. One test
// thread at a time; the child dies with the test.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/types.h>

#include "base/fd.h"
#include "process/support/line.h"

namespace stagewire::test {

/// No wait of these tests is longer: beyond it something hangs. Not a statement about speed.
inline constexpr std::chrono::seconds kHangGuard{60};

/// Polls until `condition` holds; false if the hang guard ran out first.
bool eventually(const std::function<bool()>& condition, std::chrono::nanoseconds guard = kHangGuard);

class Far;

class PeerProcess {
 public:
  /// A child of this process; or, with `far`, one of that machine, which outlives it.
  explicit PeerProcess(const Far* far = nullptr);
  /// Kills it if it still runs.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// On its own machine.
  pid_t pid() const noexcept { return pid_; }
  /// Sends a command without waiting for its answer.
  void send(const Line& command);
  /// The next answer. Verb "dead" if the peer's end of the pipe is closed, "hung" at the hang guard.
  Line answer();
  /// Both.
  Line command(const Line& command);
  /// Sends a command that must be answered with "ok".
  Line expect_ok(const Line& command);

  void kill();
  /// Stops all its threads; true once the kernel says so.
  bool stop();
  void resume();
  /// Waits for it to stop by itself; false at the hang guard.
  bool wait_for_stop();
  /// Waits for it to end by itself; false at the hang guard.
  bool wait_for_end();

 private:
  void spawn_child();

  const Far* far_;
  pid_t pid_ = -1;
  Fd pipe_;
  std::string received_;
};

}  // namespace stagewire::test
