// PeerProcess: the other process of a measurement. It is this very program, started anew with a hidden
// subcommand, and does what it is told over a pipe (bench/peer.h says what it understands). Owned and used by
// the main thread; a peer never outlives it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stagewire/base/result.h>

#include "base/fd.h"
#include "common/cli.h"

namespace stagewire::tools {

/// Fields of one line of the pipe's protocol; they may not contain tabs or line ends.
using Fields = std::vector<std::string>;

class PeerProcess {
 public:
  /// Starts the process, on one CPU if given. Errors: io.
  static Result<std::unique_ptr<PeerProcess>> spawn(std::optional<int> cpu);
  /// Kills the process if it still runs, and reaps it.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Sends a command and waits for its answer, whose first field ("ok") is left out. Errors: io (the peer has
  /// ended or did not answer in time), internal (what the peer said).
  Result<Fields> call(const Fields& command, std::chrono::seconds guard = std::chrono::seconds(120));
  /// The two halves of call(), for work that both processes do at the same time.
  Status send(const Fields& command);
  Result<Fields> answer(std::chrono::seconds guard = std::chrono::seconds(120));
  void kill();
  int pid() const noexcept { return pid_; }

 private:
  PeerProcess() = default;

  int pid_ = -1;
  Fd to_;
  Fd from_;
  std::string received_;
};

/// CPUs this process may run on.
std::vector<int> usable_cpu_list();
/// Binds the calling thread, and the threads it starts from now on, to these CPUs.
void pin_to(const std::vector<int>& cpus);

}  // namespace stagewire::tools
