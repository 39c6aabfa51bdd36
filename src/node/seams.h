// Seams: what of a node tests put their own in place of.
#pragma once

#include "base/event_loop.h"
#include "transport/verbs/verbs_transport.h"

namespace stagewire {

struct Seams {
  VerbsTransport::OpenApi open_verbs;  ///< reaches the RDMA library
  EventLoop::Reached reached;          ///< told of fault points on the loop thread; may be empty
};

}  // namespace stagewire
