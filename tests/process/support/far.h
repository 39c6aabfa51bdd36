// Far: the other machine of a test between two, told by the environment (scripts/rxe sets it): where its
// peers are started and handled, what can be done to it and to this one. Used by one test thread; owns
// nothing that outlives a call.
#pragma once

#include <string>
#include <sys/types.h>

#include "base/fd.h"

namespace stagewire::test {

class Far {
 public:
  /// Null unless STAGEWIRE_TEST_FAR says "CONTROL_HOST:PORT OWN_ADDRESS PEER_ADDRESS".
  static const Far* get();

  /// The addresses of the network under test; the control connections use another one.
  const std::string& own_address() const noexcept { return own_; }
  const std::string& peer_address() const noexcept { return peer_; }

  // Each of these fails the running test if it can't be done.

  /// Starts a peer there; the connection is its pipe.
  Fd start_peer(pid_t& pid) const;
  /// "KILL", "STOP" or "CONT"; returns when it has had its effect.
  bool signal(pid_t pid, const std::string& name) const;
  /// Waits for a peer to stop by itself.
  bool wait_for_stop(pid_t pid) const;
  /// Waits for a peer to end by itself.
  bool wait_for_end(pid_t pid) const;
  /// Runs scripts/rxe/fault there or here.
  void fault_there(const std::string& words) const;
  void fault_here(const std::string& words) const;
  /// Stops the other machine as a whole, and lets it go on.
  void freeze() const { request("freeze 1"); }
  void thaw() const { request("thaw 1"); }

 private:
  Far() = default;
  Fd open(const std::string& request, std::string& answer) const;
  bool done(const std::string& request) const;
  void request(const std::string& text) const;

  std::string control_host_;
  std::string control_port_;
  std::string own_;
  std::string peer_;
};

}  // namespace stagewire::test
