// Python objects that the core holds: the destinations of gets, and what regions lie in. The core drops such
// a hold on whatever thread is done with it, which never takes the interpreter lock; the objects go into a
// queue, and the next call into the package, the reaper thread or the end of the process drops them.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>
#include <vector>

namespace stagewire::python {

/// A hold of `objects` that may be dropped on any thread, with or without the interpreter lock.
std::shared_ptr<const void> hold_objects(std::vector<nanobind::object> objects);

/// Drops what is queued. With the lock held.
void drain_releases();
/// The body of the reaper thread: sleeps without the lock until something is queued, and drops it. False when
/// the process ends.
bool reap_once();
/// Lets the reaper look again. Any thread; lock-free.
void wake_reaper() noexcept;

}  // namespace stagewire::python
