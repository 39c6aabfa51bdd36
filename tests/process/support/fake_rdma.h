// FakeRdma: the fake RDMA adapter of one process, joined to those of the other processes of a test by a file
// (fake_fabric.h), and nodes over it. Outlives its nodes; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <stagewire/node/node.h>

#include "base/event_loop.h"

namespace stagewire::testing_support {
class FakeVerbs;
}  // namespace stagewire::testing_support

namespace stagewire::test {

class FakeRdma {
 public:
  /// The name that the device has in each process.
  static constexpr const char* kDevice = "fake0";
  /// Values of the peer's command "start": the file of the fabric, and the number of the device on it.
  static constexpr const char* kFabric = "fabric";
  static constexpr const char* kNumber = "fabric_number";

  /// `number` is another one for each process: the addresses of the devices differ by it.
  FakeRdma(const std::string& fabric, std::uint64_t number);
  /// Why it can't be used here; empty: it can.
  static const std::string& obstacle();

  /// `reached` is told of the node's fault points.
  Result<std::shared_ptr<Node>> create_node(NodeConfig config, EventLoop::Reached reached = nullptr) const;
  /// What nodes have not given back; "" if nothing.
  std::string leaks() const;

 private:
  std::shared_ptr<testing_support::FakeVerbs> verbs_;
};

}  // namespace stagewire::test
