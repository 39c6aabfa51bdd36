// Buffer: memory of the publish pool as a Python object with the writable buffer protocol, for payloads that
// are filled where they are published from. With the interpreter lock held; any thread.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>

#include <stagewire/memory/pool.h>
#include <stagewire/node/node.h>

#include "base/fd.h"

namespace stagewire::python {

/// One holder of the memory among several: arrays over it hold this object, a publication holds `buffer`. The
/// range goes back to the pool with the last of them, on whatever thread that is. In a forked child it hands
/// out no memory any more, and dropping it does nothing.
struct BufferObject {
  std::shared_ptr<Buffer> buffer;
  ForkGuard made_in;
};

/// `nbytes` bytes (0 is allowed) of the node's publish pool; waits for them, without the lock, `timeout`
/// seconds or the node's put_wait if that is None. Throws invalid_argument, too_large, pool_exhausted,
/// closed, forked, and what a signal handler raises; nothing stays requested then.
BufferObject allocate_buffer(const std::shared_ptr<Node>& node, nanobind::handle nbytes,
                             nanobind::handle timeout);

void bind_buffer(nanobind::module_& m);

}  // namespace stagewire::python
