// NodeMaker: makes nodes over a given RDMA library: Node::create() over the one that is installed, tests over
// theirs. Stateless; any thread.
#pragma once

#include <memory>

#include <stagewire/base/config.h>
#include <stagewire/node/node.h>

#include "transport/verbs/verbs_transport.h"

namespace stagewire {

struct NodeMaker {
  /// Errors as Node::create()'s.
  static Result<std::shared_ptr<Node>> make(NodeConfig config, const VerbsTransport::OpenApi& open_verbs);
};

}  // namespace stagewire
