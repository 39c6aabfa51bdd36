// See ended_generations.h.
#include "node/ended_generations.h"

namespace stagewire {

void EndedGenerations::add(std::uint64_t generation, EndReason reason) {
  const std::uint64_t index = generation % kRemembered;
  std::unique_ptr<Block>& block = blocks_[index / kPerBlock];
  if (!block) block = std::make_unique<Block>();
  Slot& slot = (*block)[index % kPerBlock];
  // An old generation that was leased for long ends after a newer one of the same slot: the newer one is
  // asked for more.
  if (slot.generation < generation) slot = {.generation = generation, .reason = reason};
}

std::optional<EndReason> EndedGenerations::find(std::uint64_t generation) const {
  const std::uint64_t index = generation % kRemembered;
  const std::unique_ptr<Block>& block = blocks_[index / kPerBlock];
  if (!block) return std::nullopt;
  const Slot& slot = (*block)[index % kPerBlock];
  if (generation == 0 || slot.generation != generation) return std::nullopt;
  return slot.reason;
}

}  // namespace stagewire
