// The memory of this node that is registered with the device for long: exported pools with remote read,
// receive pools with local write alone. Registered in the background on the device's helper, and again when
// the device has been replaced. Loop thread; owned by the transport.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <stagewire/base/result.h>

#include "base/event_loop.h"
#include "transport/transport.h"
#include "transport/verbs/read_plan.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_wire.h"

namespace stagewire {

/// Posts to the loop from any thread; false if the loop is closed and the task was dropped.
using LoopPost = std::function<bool(EventLoop::Task)>;

/// Registrations for one read, ended on the helper when the last reference goes.
class ReadRegistrations {
 public:
  /// Helper thread. Errors: io, not_viable (more separate stretches of memory than kMaxStretches).
  static Result<std::shared_ptr<const ReadRegistrations>> make(std::shared_ptr<VerbsDevice> device,
                                                               std::span<const LocalRange> ranges);
  ~ReadRegistrations();
  ReadRegistrations(const ReadRegistrations&) = delete;
  ReadRegistrations& operator=(const ReadRegistrations&) = delete;
  /// Sorted by address.
  const std::vector<LocalMemory>& memory() const noexcept { return memory_; }

  static constexpr std::size_t kMaxStretches = 4096;

 private:
  explicit ReadRegistrations(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}
  std::shared_ptr<VerbsDevice> device_;
  std::vector<Registration> registrations_;
  std::vector<LocalMemory> memory_;
};

class Registrations {
 public:
  using KeyReady = std::function<void(const Result<verbs_wire::Key>&)>;

  /// `failed` runs whenever a registration fails: retry() may do better later.
  Registrations(LoopPost post, std::shared_ptr<Logger> log, std::function<void()> failed);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// From now on memory is registered with this device (null: with none); what was registered with the one
  /// before is handed to its helper to be ended.
  void set_device(std::shared_ptr<VerbsDevice> device);
  /// Begins to register an exported memory; nothing if it is known.
  void add_exported(const ExportedMemory& memory);
  /// Ends a memory's export: deregistered in the background, after which the adapter refuses reads of it, and
  /// `until` and the memory's own hold are let go.
  void remove_exported(std::uint32_t memory, std::shared_ptr<const void> until);
  /// Begins again what failed. Until the outcome is known the old one stands.
  void retry();
  /// Runs `ready` once the outcome of the registration is known, maybe at once. Errors: not_viable (no such
  /// memory, no device), and what registering gave.
  void when_key_ready(std::uint32_t memory, KeyReady ready);
  void add_receive_pool(const std::shared_ptr<Pool>& pool);
  /// The registrations that cover `ranges`, sorted by address, if those of receive pools do.
  const std::vector<LocalMemory>* find_local(std::span<const LocalRange> ranges) const;

 private:
  // Lives as long as the device may know the memory: with its entry and with every task about it.
  struct Keep {
    std::shared_ptr<const void> memory;
    std::shared_ptr<const void> until;  // set before the entry goes, and only there
  };
  struct Entry {
    ExportedMemory memory;
    std::shared_ptr<Keep> keep;
    std::optional<Result<Registration>> outcome;  // empty: registering, or no device
    std::vector<LocalMemory> local;
    std::vector<KeyReady> waiting;
    bool registering = false;  // with the present device
  };
  void start(std::uint32_t memory, bool exported);
  void finished(std::uint32_t memory, bool exported, const std::shared_ptr<VerbsDevice>& device,
                std::shared_ptr<Keep> keep, Result<Registration> outcome);
  static void deregister(const std::shared_ptr<VerbsDevice>& device, Registration registration,
                         std::shared_ptr<Keep> keep, const std::string& name);
  void end(Entry& entry);
  Result<verbs_wire::Key> key_of(std::uint32_t memory, const Entry& entry) const;
  std::map<std::uint32_t, Entry>& table(bool exported) { return exported ? exported_ : received_; }

  const LoopPost post_;
  const std::shared_ptr<Logger> log_;
  const std::function<void()> failed_;
  std::shared_ptr<VerbsDevice> device_;
  std::map<std::uint32_t, Entry> exported_;  // by memory id
  std::map<std::uint32_t, Entry> received_;  // by a number of our own
  std::uint32_t next_received_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stagewire
