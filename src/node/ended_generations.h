// EndedGenerations: remembers of the newest generations that have ended, and why, so that a late ticket gets
// the true answer. One slot for each of the last kRemembered generations, in blocks that are allocated when
// first needed: nothing is allocated for each end, and no lookup walks through memory that has not been used
// for long. Loop thread only; owned by the Lender.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <stagewire/node/options.h>

namespace stagewire {

class EndedGenerations {
 public:
  /// How far back from the newest end an end is remembered: 1 MiB when full.
  static constexpr std::uint64_t kRemembered = 65536;

  /// `generation` (> 0) has ended. Forgets the end of the one kRemembered before it.
  void add(std::uint64_t generation, EndReason reason);
  /// Why it ended; nothing if it has not, or too long ago.
  std::optional<EndReason> find(std::uint64_t generation) const;

 private:
  struct Slot {
    std::uint64_t generation = 0;
    EndReason reason = EndReason::closed;
  };
  static constexpr std::uint64_t kPerBlock = 1024;
  using Block = std::array<Slot, kPerBlock>;

  std::array<std::unique_ptr<Block>, kRemembered / kPerBlock> blocks_;
};

}  // namespace stagewire
