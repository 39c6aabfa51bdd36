// Node as a Python object. With the interpreter lock held; every call that can wait or copies gives it up
// meanwhile.
#pragma once

#include <memory>
#include <nanobind/nanobind.h>

#include <stagewire/node/node.h>

namespace stagewire::python {

struct NodeObject {
  explicit NodeObject(std::shared_ptr<Node> made) : node(std::move(made)) {}
  ~NodeObject();
  NodeObject(const NodeObject&) = delete;
  NodeObject& operator=(const NodeObject&) = delete;

  std::shared_ptr<Node> node;
};

nanobind::dict stats_dict(const NodeStats& stats);
void bind_node(nanobind::module_& m);

}  // namespace stagewire::python
