// Starting of the memory layer's threads (copy workers, populating threads). Any thread may start one; the
// std::thread returned is the caller's.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include <stagewire/base/result.h>

namespace stagewire {

/// Starts a thread that is named `name` (cut to the kernel's 15 characters) and has every signal blocked from
/// its first instruction on, so that a signal of the application never lands on a thread of stagewire.
/// `body` must not throw. Errors: io.
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

}  // namespace stagewire
