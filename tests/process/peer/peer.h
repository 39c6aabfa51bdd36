// The peer program's state and its commands. The program is the other process of the process tests: it reads
// a command a line from descriptor 3, runs it on its main thread, and answers with one line. Gets run in the
// background under names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <stagewire/connector/connector.h>
#include <stagewire/node/node.h>

#include "base/fd.h"
#include "process/support/fake_rdma.h"
#include "process/support/fault_trigger.h"
#include "process/support/line.h"
#include "process/support/pattern.h"

namespace stagewire::test {

/// A get under a name, with what keeps its destination.
struct NamedGet {
  GetHandle handle;
  std::shared_ptr<std::vector<std::byte>> destination;
  Got got;
};

struct Peer {
  std::uint64_t descriptors_at_start = 0;
  std::unique_ptr<FakeRdma> rdma;  ///< what the node reads through, if the test says so; outlives it
  FaultTrigger trigger;            ///< of the node's fault points; outlives it
  std::shared_ptr<Node> node;
  std::map<std::string, NamedGet> gets;
  std::map<std::string, std::shared_ptr<Connector>> connectors;
  std::vector<Fd> fillers;  ///< what fills the table of descriptors
  std::uint64_t limit_of_files = 0;
};

using Command = std::function<Line(Peer& peer, const Line& line)>;
using Commands = std::map<std::string, Command>;

void add_node_commands(Commands& commands);
void add_fault_commands(Commands& commands);
void add_connector_commands(Commands& commands);

/// "error kind=… text=…".
Line failed(const Error& error);
Pattern pattern_of(const Line& line);
Key key_of(const Line& line);

}  // namespace stagewire::test
