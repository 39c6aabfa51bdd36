// Runs a check in a forked child, for tests of what a fork or another process may do. Header only; called on
// the test's thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace stagewire::test {

/// Forks, runs `check` in the child, which then ends without running exit handlers, and returns what the
/// check returned (0 to 100); −1 if the child could not be made or died otherwise.
template <typename Check>
int run_in_child(Check&& check) {
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) ::_exit(std::forward<Check>(check)());
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace stagewire::test
