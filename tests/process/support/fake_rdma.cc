// See fake_rdma.h.
#include "process/support/fake_rdma.h"

#include <utility>
#include <vector>

#include "fake/fake_fabric.h"
#include "fake/fake_verbs.h"
#include "node/node_maker.h"

namespace stagewire::test {

using testing_support::fake_roce;
using testing_support::FakeFabric;
using testing_support::FakeVerbs;

FakeRdma::FakeRdma(const std::string& fabric, std::uint64_t number)
    : verbs_(std::make_shared<FakeVerbs>(std::vector{fake_roce(kDevice, static_cast<std::uint8_t>(number))},
                                         number, FakeFabric::join(fabric))) {}

const std::string& FakeRdma::obstacle() {
  return FakeFabric::obstacle();
}

Result<std::shared_ptr<Node>> FakeRdma::create_node(NodeConfig config, EventLoop::Reached reached) const {
  const auto open = [verbs = verbs_]() -> Result<std::shared_ptr<VerbsApi>> {
    return std::shared_ptr<VerbsApi>(verbs);
  };
  return NodeMaker::make(std::move(config), {.open_verbs = open, .reached = std::move(reached)});
}

std::string FakeRdma::leaks() const {
  return verbs_->leaks();
}

}  // namespace stagewire::test
