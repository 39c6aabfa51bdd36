// See thread_start.h. A new thread inherits its creator's signal mask, so the mask is set before the thread
// exists and restored afterwards: blocking inside the thread would leave a gap.
#include "memory/thread_start.h"

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace stagewire {

namespace {

constexpr std::size_t kKernelNameLength = 15;

}  // namespace

Result<std::thread> start_thread(const std::string& name, std::function<void()> body) {
  sigset_t all;
  sigset_t previous;
  ::sigfillset(&all);
  const int masked = ::pthread_sigmask(SIG_SETMASK, &all, &previous);
  if (masked != 0) return Error::from_errno(masked, "cannot block signals for thread " + name);
  std::thread thread;
  int failure = 0;
  try {
    thread = std::thread([body = std::move(body)]() noexcept { body(); });
  } catch (const std::system_error& error) {
    failure = error.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (failure != 0) return Error::from_errno(failure, "cannot start thread " + name);
  ::pthread_setname_np(thread.native_handle(), name.substr(0, kKernelNameLength).c_str());
  return thread;
}

}  // namespace stagewire
