// See registrations.h.
#include "transport/verbs/registrations.h"

#include <algorithm>
#include <string>
#include <unistd.h>
#include <utility>

namespace stagewire {

namespace {

std::vector<LocalMemory> local_memory(std::uintptr_t address, std::uint64_t size,
                                      const Registration& registration) {
  std::vector<LocalMemory> memory;
  for (std::size_t i = 0; i < registration.pieces.size(); ++i) {
    const std::uint64_t offset = i * registration.piece;
    memory.push_back(
        {address + offset, std::min(registration.piece, size - offset), registration.pieces[i]->lkey});
  }
  return memory;
}

Error no_device() {
  return Error(ErrorKind::not_viable, "the sender has no RDMA device in use now");
}

}  // namespace

// --- Registrations of one read.

Result<std::shared_ptr<const ReadRegistrations>> ReadRegistrations::make(std::shared_ptr<VerbsDevice> device,
                                                                         std::span<const LocalRange> ranges) {
  const std::vector<LocalMemory> stretches =
      pages_of(ranges, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  if (stretches.size() > kMaxStretches) {
    return Error(ErrorKind::not_viable, "the destination lies in " + std::to_string(stretches.size()) +
                                            " separate stretches of memory; at most " +
                                            std::to_string(kMaxStretches) + " are registered for one read");
  }
  std::shared_ptr<ReadRegistrations> made(new ReadRegistrations(std::move(device)));
  for (const LocalMemory& stretch : stretches) {
    // The range came to us as memory that the caller may write.
    auto* address = reinterpret_cast<void*>(stretch.address);  // NOLINT(performance-no-int-to-ptr)
    STAGEWIRE_ASSIGN(Registration registration,
                     made->device_->register_memory(address, stretch.size, false, "the destination"));
    for (const LocalMemory& piece : local_memory(stretch.address, stretch.size, registration))
      made->memory_.push_back(piece);
    made->registrations_.push_back(std::move(registration));
  }
  return std::shared_ptr<const ReadRegistrations>(std::move(made));
}

ReadRegistrations::~ReadRegistrations() {
  if (registrations_.empty()) return;
  device_->helper().post("deregistering a destination",
                         [device = device_, registrations = std::move(registrations_)] {
                           for (const Registration& each : registrations) device->deregister(each);
                         });
}

// --- Long-lived ones.

Registrations::Registrations(LoopPost post, std::shared_ptr<Logger> log, std::function<void()> failed)
    : post_(std::move(post)), log_(std::move(log)), failed_(std::move(failed)) {}

Registrations::~Registrations() = default;

void Registrations::set_device(std::shared_ptr<VerbsDevice> device) {
  for (const bool exported : {true, false}) {
    for (auto& [id, entry] : table(exported)) end(entry);
  }
  device_ = std::move(device);
  for (const bool exported : {true, false}) {
    for (const auto& [id, entry] : table(exported)) start(id, exported);
  }
}

void Registrations::end(Entry& entry) {
  const std::optional<Result<Registration>> outcome = std::exchange(entry.outcome, std::nullopt);
  entry.local.clear();
  if (!outcome || !outcome->ok() || !device_) return;
  deregister(device_, **outcome, entry.keep, entry.memory.name);
}

void Registrations::deregister(const std::shared_ptr<VerbsDevice>& device, Registration registration,
                               std::shared_ptr<Keep> keep, const std::string& name) {
  device->helper().post("deregistering " + name,
                        [device, registration = std::move(registration), keep = std::move(keep)]() mutable {
                          // What the adapter may still read is not its owner's yet.
                          if (!device->deregister(registration)) device->hold_until_closed(std::move(keep));
                          keep.reset();
                        });
}

void Registrations::add_exported(const ExportedMemory& memory) {
  if (exported_.contains(memory.memory)) return;
  Entry& entry = exported_[memory.memory];
  entry.memory = memory;
  entry.keep = std::make_shared<Keep>(Keep{.memory = memory.hold, .until = {}});
  start(memory.memory, true);
}

void Registrations::remove_exported(std::uint32_t memory, std::shared_ptr<const void> until) {
  const auto found = exported_.find(memory);
  if (found == exported_.end()) return;
  found->second.keep->until = std::move(until);
  end(found->second);
  const std::vector<KeyReady> waiting = std::move(found->second.waiting);
  exported_.erase(found);
  for (const KeyReady& ready : waiting)
    ready(Error(ErrorKind::lease_lost, "the sender has withdrawn the memory"));
}

void Registrations::add_receive_pool(const std::shared_ptr<Pool>& pool) {
  const std::uint32_t id = next_received_++;
  Entry& entry = received_[id];
  entry.memory = ExportedMemory::of(id, pool);
  entry.keep = std::make_shared<Keep>(Keep{.memory = pool, .until = {}});
  start(id, false);
}

void Registrations::start(std::uint32_t memory, bool exported) {
  if (!device_) return;
  Entry& entry = table(exported)[memory];
  entry.registering = true;
  // The adapter writes to receive pools alone, which are writable; of what is exported it may only read.
  auto* base = const_cast<std::byte*>(entry.memory.base);
  device_->helper().post("registering " + entry.memory.name,
                         [this, memory, exported, base, size = entry.memory.size, name = entry.memory.name,
                          keep = entry.keep, device = device_, post = post_, alive = std::weak_ptr(alive_)] {
                           auto outcome = std::make_shared<Result<Registration>>(
                               device->register_memory(base, size, exported, name));
                           const bool posted = post([this, memory, exported, device, keep, outcome, alive] {
                             if (alive.lock())
                               return finished(memory, exported, device, keep, std::move(*outcome));
                           });
                           if (!posted && outcome->ok()) device->deregister(**outcome);
                         });
}

void Registrations::finished(std::uint32_t memory, bool exported, const std::shared_ptr<VerbsDevice>& device,
                             std::shared_ptr<Keep> keep, Result<Registration> outcome) {
  const auto found = table(exported).find(memory);
  if (found == table(exported).end() || device != device_) {
    // Withdrawn, or the device was replaced, while it was being registered.
    if (outcome.ok()) deregister(device, std::move(*outcome), std::move(keep), "memory");
    return;
  }
  Entry& entry = found->second;
  entry.registering = false;
  const bool failed_before = entry.outcome.has_value();
  if (failed_before && outcome.ok()) log_->warn("verbs: " + entry.memory.name + " is registered now");
  if (!outcome.ok()) {
    log_->log(failed_before ? LogLevel::debug : LogLevel::error, outcome.error().to_string());
    failed_();
  } else if (!exported) {
    entry.local =
        local_memory(reinterpret_cast<std::uintptr_t>(entry.memory.base), entry.memory.size, *outcome);
  }
  entry.outcome.emplace(std::move(outcome));
  for (const KeyReady& ready : std::exchange(entry.waiting, {})) ready(key_of(memory, entry));
}

void Registrations::retry() {
  for (const bool exported : {true, false}) {
    for (const auto& [id, entry] : table(exported)) {
      if (entry.outcome && !entry.outcome->ok() && !entry.registering) start(id, exported);
    }
  }
}

Result<verbs_wire::Key> Registrations::key_of(std::uint32_t memory, const Entry& entry) const {
  if (!entry.outcome->ok()) return entry.outcome->error();
  const Registration& registration = **entry.outcome;
  if (registration.pieces.size() > kMaxVerbsPieces) {
    return Error(ErrorKind::too_large, "the memory needs " + std::to_string(registration.pieces.size()) +
                                           " registrations; at most " + std::to_string(kMaxVerbsPieces) +
                                           " are announced (the adapter's max_mr_size is small)");
  }
  verbs_wire::Key key;
  key.memory = memory;
  key.address = reinterpret_cast<std::uintptr_t>(entry.memory.base);
  key.size = entry.memory.size;
  key.piece = registration.piece;
  for (const ibv_mr* piece : registration.pieces) key.rkeys.push_back(piece->rkey);
  return key;
}

void Registrations::when_key_ready(std::uint32_t memory, KeyReady ready) {
  const auto found = exported_.find(memory);
  if (found == exported_.end()) {
    return ready(Error(ErrorKind::not_viable,
                       "memory " + std::to_string(memory) + " is not exported by the sender over verbs"));
  }
  if (found->second.outcome) return ready(key_of(memory, found->second));
  if (!device_) return ready(no_device());
  found->second.waiting.push_back(std::move(ready));
}

const std::vector<LocalMemory>* Registrations::find_local(std::span<const LocalRange> ranges) const {
  for (const auto& [id, entry] : received_) {
    if (entry.local.empty()) continue;
    const bool all =
        std::all_of(ranges.begin(), ranges.end(), [&pool = *entry.memory.pool](const LocalRange& range) {
          return range.length == 0 || pool.contains(range.data, range.length);
        });
    if (all) return &entry.local;
  }
  return nullptr;
}

}  // namespace stagewire
