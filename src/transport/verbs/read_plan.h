// Turns the two range lists of a read into RDMA READ requests: adjacent ranges coalesced, cut where either
// side ends, at the borders of registrations and at the chunk size; several local pieces gathered into one
// request where the remote side goes on. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <stagewire/base/result.h>

#include "transport/transport.h"
#include "transport/verbs/verbs_api.h"

namespace stagewire {

/// A peer's memory as its adapter knows it: `rkeys[i]` stands for the bytes from i × piece on.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t size = 0;   ///< bytes
  std::uint64_t piece = 0;  ///< bytes
  std::vector<std::uint32_t> rkeys;
};

/// A registered stretch of this process.
struct LocalMemory {
  std::uintptr_t address = 0;
  std::uint64_t size = 0;  ///< bytes
  std::uint32_t lkey = 0;
};

/// One request: `sge_count` local pieces from `first_sge` on are filled from `remote` on.
struct PlannedRead {
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;  ///< bytes
  std::uint32_t first_sge = 0;
  std::uint32_t sge_count = 0;
};
struct ReadPlan {
  std::vector<PlannedRead> reads;
  std::vector<ibv_sge> pieces;
};

struct PlanLimits {
  std::uint32_t chunk = 1U << 20U;  ///< bytes of one request at most
  std::uint32_t max_sge = 1;        ///< local pieces of one request at most
};

/// Finds the memory of a range; null where it is not known. Ranges have been checked against its size.
using FindRemote = const RemoteMemory* (*)(const void* context, std::uint32_t memory);

/// Plans `from` → `to`, which have the same total length. `local` covers all of `to`, sorted by address and
/// not overlapping. Errors: internal where it does not; not_viable for a memory that is not known.
Result<ReadPlan> plan_read(std::span<const RemoteRange> from, std::span<const LocalRange> to, FindRemote find,
                           const void* context, std::span<const LocalMemory> local, const PlanLimits& limits);

/// The stretches of whole pages that hold `ranges`, sorted and merged where they touch: what to register for
/// them.
std::vector<LocalMemory> pages_of(std::span<const LocalRange> ranges, std::uint64_t page);

}  // namespace stagewire
