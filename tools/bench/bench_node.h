// Nodes as the benches want them, the same on both sides of a measurement, and the pair of one in this
// process and one in a peer's. Used by each process's main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stagewire/node/node.h>

#include "bench/peer_process.h"
#include "common/cli.h"

namespace stagewire::tools {

/// How a case reaches the peer.
enum class Way : std::uint8_t {
  same_host,  ///< as any two processes of one host do
  tcp,        ///< as if the peer were on another host
};

/// Starts a node and waits until its pools are touched. With `tcp_only`, peers can reach it by TCP alone: its
/// Unix socket is put into a directory that is removed again. Errors: what Node::create gives; io.
Result<std::shared_ptr<Node>> start_bench_node(const NodeSettings& settings, const OptionList& base,
                                               bool tcp_only);

/// The key of a bench payload.
Key bench_key(const std::string& name);
/// Lives longer than any bench.
PutOptions bench_put_options();
/// User and system time of this process so far.
std::int64_t cpu_nanoseconds();

/// A peer process with a node, and this process's node with a session to it.
class Pair {
 public:
  struct Options {
    NodeSettings settings;
    OptionList base;  ///< for both nodes
    Way way = Way::same_host;
    std::optional<int> peer_cpu;
    std::vector<int> own_cpus;  ///< what this process is bound to from then on; empty: as it is
  };
  static Result<std::unique_ptr<Pair>> start(const Options& options);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Node& node() const noexcept { return *node_; }
  PeerProcess& peer() const noexcept { return *peer_; }
  const std::string& address() const noexcept { return address_; }
  /// The source of a key at the peer's node, published or not.
  Source at_peer(const std::string& name) const;

  /// Has the peer make a slot of publish memory, filled with the pattern of the slot's number.
  Status make_buffer(std::uint64_t slot, std::uint64_t bytes);
  /// Has the peer publish a slot in place for any number of readers.
  Result<Source> publish(const std::string& key, std::uint64_t slot, std::uint64_t bytes,
                         std::uint64_t tensors = 1);
  /// A get as a reader that has not read before. Times only the call, in seconds, into `seconds`.
  Result<Got> get(const Source& source, Placement placement, double& seconds,
                  std::optional<DestinationRange> into = std::nullopt);
  /// Options of such a get, for asynchronous ones.
  GetOptions get_options(Placement placement, std::optional<DestinationRange> into = std::nullopt);

 private:
  Pair() = default;

  std::unique_ptr<PeerProcess> peer_;
  std::shared_ptr<Node> node_;
  std::string address_;
  NodeId peer_id_;
  std::uint64_t readers_ = 0;
};

}  // namespace stagewire::tools
