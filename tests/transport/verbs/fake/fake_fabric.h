// The network that joins the fake adapters of several processes of one host: a file that they all map, with
// what a far adapter can know of a queue pair and of a registration. A read fetches the bytes from the other
// process with process_vm_readv(2), which asks nothing of that process: as with an adapter, it may be
// stopped meanwhile. Each place in the tables is written by one process alone and read by all, without a
// lock: one that is killed or stopped at any moment holds up nobody. (A robust mutex would do for the
// killed; a stopped process that holds it would stop the other's node, which no adapter does.) What a killed
// process leaves in the tables stays there; nobody answers in its name. Unmapped with the last reference; the
// file is its maker's to remove. Thread-safe, but for two changes of one queue pair at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "transport/verbs/device_facts.h"
#include "transport/verbs/verbs_api.h"

namespace stagewire::testing_support {

/// A queue pair as far adapters see it.
struct FabricQueuePair {
  std::uint32_t number = 0;
  std::uint32_t peer = 0;  ///< the number of the queue pair that it answers
  std::uint32_t rq_psn = 0;
  ibv_qp_state state = IBV_QPS_RESET;
  bool remote_read = false;
  bool port_active = false;
  std::uint16_t lid = 0;
  std::vector<Gid> gids;  ///< of its port; kMaxGids at most
  const void* pd = nullptr;
};

/// Memory that others may read.
struct FabricRegistration {
  std::uint32_t key = 0;
  const void* pd = nullptr;
  const void* address = nullptr;
  std::uint64_t length = 0;
};

/// What a request for a read says.
struct FabricRead {
  std::uint32_t from = 0;  ///< number of the queue pair that reads
  std::uint32_t to = 0;    ///< and of the one that answers
  std::uint32_t sq_psn = 0;
  bool global = false;  ///< addressed by `gid`, else by `lid`
  Gid gid{};
  std::uint16_t lid = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

class FakeFabric {
 public:
  static constexpr std::size_t kMaxGids = 8;

  /// Maps the file, which the first to come makes, and lets other processes read the memory of this one.
  static std::shared_ptr<FakeFabric> join(const std::filesystem::path& file);
  /// Why processes of this user may not read each other's memory here; empty: they may. Forks.
  static const std::string& obstacle();
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  /// A number that nothing else on the fabric has or will have, for a queue pair or a key.
  std::uint32_t next_number();

  /// Adds a queue pair of this process, or changes what is known of it.
  void set(const FabricQueuePair& queue_pair);
  void remove_queue_pair(std::uint32_t number);
  void add(const FabricRegistration& registration);
  /// No read that ends after this one returns the memory's bytes.
  void remove_registration(std::uint32_t key);

  /// Reads a piece: the `to.size()` bytes at `offset` of what `read` asks for. The other end is looked at
  /// before and, since nothing holds it still, again when the bytes are here: if it has ceased to answer or
  /// the key to be good by then, the piece is not valid. That is an adapter's behaviour, which looks the key
  /// up for each packet; and the owner, who must not wait for a reader that may be stopped, never does.
  ibv_wc_status fetch(const FabricRead& read, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Tables;
  struct QueuePairPlace;
  struct RegistrationPlace;
  explicit FakeFabric(Tables* tables) : tables_(tables) {}
  ibv_wc_status check(const FabricRead& read, pid_t& owner) const;

  Tables* const tables_;
};

}  // namespace stagewire::testing_support
