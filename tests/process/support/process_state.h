// What a process leaves behind: its open descriptors, and names in the file system. Free functions; any
// thread.
#pragma once

#include <cstddef>
#include <set>
#include <string>

namespace stagewire::test {

/// SO_PRIORITY of a test's own TCP connections, at both ends.
inline constexpr int kPipePriority = 6;
/// Open descriptors of this process.
std::size_t open_descriptors();
/// Of this process.
std::size_t running_threads();
/// Sockets and files of stagewire in /dev/shm and /tmp.
std::set<std::string> left_behind_names();
/// Ends the sessions of this process from below, as a broken network does: shuts down every connected socket
/// that is one, at whatever level. Returns how many. Unix sessions are told from lifelines and from the
/// test's pipe by their names: those have none; a pipe to another machine is told by its priority.
std::size_t break_session_sockets();

}  // namespace stagewire::test
