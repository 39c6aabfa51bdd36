// NodeMaker: makes nodes with given seams: Node::create() with the product's, tests with theirs. Stateless;
// any thread.
#pragma once

#include <memory>

#include <stagewire/base/config.h>
#include <stagewire/node/node.h>

#include "node/seams.h"

namespace stagewire {

struct NodeMaker {
  /// Errors as Node::create()'s.
  static Result<std::shared_ptr<Node>> make(NodeConfig config, Seams seams);
};

}  // namespace stagewire
