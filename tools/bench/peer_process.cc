// See peer_process.h.
#include "bench/peer_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <stagewire/base/deadline.h>

extern char** environ;

namespace stagewire::tools {

std::vector<int> usable_cpu_list() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  static_cast<void>(::sched_setaffinity(0, sizeof set, &set));
}

Result<std::unique_ptr<PeerProcess>> PeerProcess::spawn(std::optional<int> cpu) {
  std::array<int, 2> down{-1, -1};
  std::array<int, 2> up{-1, -1};
  if (::pipe2(down.data(), O_CLOEXEC) != 0) return Error::from_errno(errno, "making a pipe");
  const Fd child_in(down[0]);
  std::unique_ptr<PeerProcess> peer(new PeerProcess());
  peer->to_ = Fd(down[1]);
  if (::pipe2(up.data(), O_CLOEXEC) != 0) return Error::from_errno(errno, "making a pipe");
  const Fd child_out(up[1]);
  peer->from_ = Fd(up[0]);

  std::array<std::string, 4> words{"stagewire", "bench-peer", "--cpu", std::to_string(cpu.value_or(-1))};
  std::array<char*, 5> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  const int failed =
      ::posix_spawn(&peer->pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    peer->pid_ = -1;
    return Error::from_errno(failed, "starting the peer process");
  }
  return peer;
}

PeerProcess::~PeerProcess() {
  kill();
}

void PeerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Status PeerProcess::send(const Fields& command) {
  std::string line;
  for (const std::string& field : command) {
    if (!line.empty()) line += '\t';
    line += field;
  }
  line += '\n';
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::write(to_.get(), line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno(errno, "the peer process has ended: writing to it");
    sent += static_cast<std::size_t>(n);
  }
  return {};
}

Result<Fields> PeerProcess::answer(std::chrono::seconds guard) {
  const Deadline deadline = Deadline::in(guard);
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    pollfd waiting{.fd = from_.get(), .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left());
    const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error(ErrorKind::io, "the peer process did not answer in time");
    std::array<char, 65536> piece;
    const ssize_t n = ::read(from_.get(), piece.data(), piece.size());
    if (n <= 0) return Error(ErrorKind::io, "the peer process has ended unexpectedly");
    received_.append(piece.data(), static_cast<std::size_t>(n));
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  Fields fields;
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t stop = std::min(line.find('\t', start), line.size());
    fields.push_back(line.substr(start, stop - start));
    start = stop + 1;
  }
  if (fields.front() != "ok")
    return Error(ErrorKind::internal, "the peer process says: " + (fields.size() > 1 ? fields[1] : line));
  fields.erase(fields.begin());
  return fields;
}

Result<Fields> PeerProcess::call(const Fields& command, std::chrono::seconds guard) {
  STAGEWIRE_TRY(send(command));
  return answer(guard);
}

}  // namespace stagewire::tools
