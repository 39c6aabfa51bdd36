// See process_state.h.
#include "process/support/process_state.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>

namespace stagewire::test {

namespace {

bool is_session(int fd) {
  int priority = 0;
  socklen_t size = sizeof(priority);
  if (::getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &size) == 0 && priority == kPipePriority)
    return false;
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) != 0) return false;
  if (own.ss_family == AF_INET || own.ss_family == AF_INET6) return true;
  if (own.ss_family != AF_UNIX) return false;
  return own_size > sizeof(sa_family_t) || other_size > sizeof(sa_family_t);
}

}  // namespace

std::size_t open_descriptors() {
  std::size_t count = 0;
  std::error_code full;  // the table of descriptors may be, on purpose
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", full))
    ++count;
  return full ? 0 : count - 1;  // the iterator's own
}

std::size_t running_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(threads), end(threads)));
}

std::set<std::string> left_behind_names() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const char* directory : {"/dev/shm", "/tmp"}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
      const std::string name = entry.path().filename().string();
      // The sockets' names, and whatever a memory would be called; directories of tests that run beside this
      // one are theirs.
      const bool socket = name.rfind("stagewire-node-", 0) == 0 || name.rfind("stagewire-port-", 0) == 0;
      if (socket || (!entry.is_directory(ignored) && name.find("stagewire") != std::string::npos))
        names.insert(entry.path().string());
    }
  }
  return names;
}

std::size_t break_session_sockets() {
  std::size_t count = 0;
  std::set<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    fds.insert(std::atoi(entry.path().filename().c_str()));
  for (const int fd : fds) {
    if (!is_session(fd)) continue;
    ::shutdown(fd, SHUT_RDWR);
    ++count;
  }
  return count;
}

}  // namespace stagewire::test
