// Regions: registering memory of the caller's own, publishing from it, and taking it back. See core.h.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "node/core.h"
#include "node/on_loop.h"
#include "node/region_state.h"

namespace stagewire {

namespace {
// What peers take from one node over verbs (kMaxVerbsMemories), less the pools.
constexpr std::size_t kMaxRegions = 250;
}  // namespace

Result<std::shared_ptr<Region>> NodeCore::register_region(const void* data, std::uint64_t size,
                                                          RegionOptions options) {
  const auto attempt = [&]() -> Result<std::shared_ptr<Region>> {
    STAGEWIRE_TRY(check_usable());
    if (data == nullptr || size == 0) {
      return Error(ErrorKind::invalid_argument, "a region needs an address and at least one byte");
    }
    if (!options.kind.is_host()) {
      return Error(ErrorKind::not_viable,
                   "regions of " + to_string(options.kind) + " memory are not supported in this version");
    }
    Oneshot<bool> over = Oneshot<bool>::make();
    auto use = std::make_shared<RegionUse>();
    use->over = std::move(over.promise);
    use->hold = std::move(options.hold);
    auto state = std::make_unique<Region::State>();
    state->data = static_cast<const std::byte*>(data);
    state->size = size;
    state->name = std::move(options.name);
    state->grace = config_.abort_grace;
    state->core = this;
    state->mailbox = mailbox_;
    state->log = log_;
    state->over = std::move(over.future);
    ExportedMemory memory;
    memory.base = state->data;
    memory.size = size;
    memory.kind = options.kind;
    memory.name = state->name;
    memory.hold = use;
    const auto added = on_loop<Result<std::uint32_t>>(
        [this, memory = std::move(memory)]() mutable { return add_region(std::move(memory)); });
    if (!added) return Error(ErrorKind::closed, "the node is closed");
    if (!added->ok()) return added->error();
    state->memory = **added;
    state->use = std::move(use);
    return std::make_shared<Region>(std::move(state));
  };
  Result<std::shared_ptr<Region>> region = attempt();
  if (!region.ok()) return std::move(region.error().with_operation("register region"));
  return region;
}

Result<std::uint32_t> NodeCore::add_region(ExportedMemory memory) {
  const auto regions = std::count_if(memories_.begin(), memories_.end(),
                                     [](const ExportedMemory& each) { return each.is_region(); });
  if (static_cast<std::size_t>(regions) >= kMaxRegions) {
    return Error(ErrorKind::busy, "a node has at most " + std::to_string(kMaxRegions) +
                                      " regions; register larger stretches of memory, or close some");
  }
  memory.memory = next_memory_++;
  for (auto& transport : transports_) {
    if (!transport->can_fence() || !transport->viability().viable) continue;
    Result<MemoryToken> token = transport->export_memory(memory);
    if (token.ok()) continue;
    for (auto& each : transports_) each->forget_memory(memory.memory, nullptr);
    return std::move(token).error();
  }
  lease_table_.add_memory(memory);
  peers_->announce(memory);
  const std::uint32_t id = memory.memory;
  memories_.push_back(std::move(memory));
  return id;
}

bool NodeCore::has_regions(const std::vector<RemoteRange>& ranges) const {
  return std::all_of(ranges.begin(), ranges.end(), [this](const RemoteRange& range) {
    return std::any_of(memories_.begin(), memories_.end(),
                       [&range](const ExportedMemory& memory) { return memory.memory == range.memory; });
  });
}

void NodeCore::drop_region(std::uint32_t id, EndReason reason) {
  const auto found = std::find_if(memories_.begin(), memories_.end(), [id](const ExportedMemory& memory) {
    return memory.memory == id && memory.is_region();
  });
  if (found == memories_.end()) return;
  const ExportedMemory memory = std::move(*found);
  memories_.erase(found);
  // First the leases, so that nothing new is pinned or granted; then whatever reads without asking.
  auto bodies = std::make_shared<std::vector<std::shared_ptr<const void>>>(
      lender_->revoke_memory(id, reason, boottime_now()));
  lease_table_.remove_memory(id);
  for (auto& transport : transports_) transport->forget_memory(id, bodies);
  peers_->announce_gone(id);
  reader_->on_memory_gone(id_, id);
  arm_lender_timer();
}

void NodeCore::drop_regions(EndReason reason) {
  std::vector<std::uint32_t> ids;
  for (const ExportedMemory& memory : memories_) {
    if (memory.is_region()) ids.push_back(memory.memory);
  }
  for (const std::uint32_t id : ids) drop_region(id, reason);
}

Result<Ticket> NodeCore::put_in_regions(const Key& key, const Payload& payload,
                                        const std::vector<std::shared_ptr<Region>>& regions,
                                        PutOptions options) {
  // First, because a forked child may find the regions' locks held.
  if (const Status usable = check_usable(); !usable.ok()) return with_put(usable.error(), key);
  auto body = std::make_shared<SourceBody>();
  struct Usable {
    std::uint32_t memory;
    const std::byte* data;
    std::uint64_t size;
  };
  std::vector<Usable> usable;
  for (const auto& region : regions) {
    // Told by the mailbox, which the region keeps: another node's core may lie where that of its own did.
    if (!region || region->state_->mailbox != mailbox_) {
      return with_put(Error(ErrorKind::invalid_argument, "a region is empty or not of this node"), key);
    }
    Region::State& state = *region->state_;
    const std::lock_guard lock(state.mutex);
    if (state.use == nullptr)
      return with_put(Error(ErrorKind::closed, "region '" + state.name + "' is closed"), key);
    body->regions.push_back(state.use);
    usable.push_back({.memory = state.memory, .data = state.data, .size = state.size});
  }
  const Locate locate = [&usable](const std::byte* data, std::uint64_t length) -> std::optional<RemoteRange> {
    for (const Usable& region : usable) {
      if (data < region.data || length > region.size) continue;
      const auto offset = static_cast<std::uint64_t>(data - region.data);
      if (offset <= region.size - length)
        return RemoteRange{.memory = region.memory, .offset = offset, .length = length};
    }
    return std::nullopt;
  };
  return publish_in_place(key, payload, std::move(body), locate, "regions", std::move(options));
}

}  // namespace stagewire
