// The reading side of a link. See verbs_link.h.
#include "transport/verbs/verbs_link.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/units.h"
#include "transport/bytes.h"
#include "transport/ranges.h"

namespace stagewire {

namespace {

constexpr std::string_view kName = "verbs";
constexpr std::uint64_t kTokenMagic = 0x3130626576777473ULL;  // "stwveb01" as little-endian text
// Plans of more ranges take longer than the loop may: the helper makes them.
constexpr std::size_t kPlannedOnLoop = 4096;

// The memories of one read, kept alive while the helper plans it.
using ReadMemories = std::vector<std::pair<std::uint32_t, std::shared_ptr<const RemoteMemory>>>;

const RemoteMemory* find_memory(const void* context, std::uint32_t memory) {
  for (const auto& [id, keys] : *static_cast<const ReadMemories*>(context)) {
    if (id == memory) return keys.get();
  }
  return nullptr;
}

PlanLimits limits_of(const VerbsDevice& device) {
  const auto chunk = std::min<std::uint64_t>(device.options().chunk_size, device.max_message());
  // As QueuePair::create asks for.
  const int most = std::clamp(device.attributes().max_sge, 1, static_cast<int>(kMaxPieces));
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(most)};
}

}  // namespace

namespace verbs_link {
std::string make_token() {
  std::string token;
  bytes::put(token, kTokenMagic);
  return token;
}
}  // namespace verbs_link

VerbsLink::VerbsLink(VerbsHost& host, LinkChannel& channel, const verbs_wire::Hello& peer)
    : host_(host), channel_(channel), peer_(peer), retry_delay_(host.options.retry_first) {
  host_.links.insert(this);
  make_reads();
}

VerbsLink::~VerbsLink() {
  host_.links.erase(this);
}

EventLoop::TimerId VerbsLink::call_in(std::chrono::milliseconds time, EventLoop::Task task) {
  return host_.loop.call_at(Deadline::in(time), std::move(task));
}

void VerbsLink::make_reads() {
  if (!host_.device) return;
  // The events come on the poller's or the helper's thread and name the reads they belong to: there may be
  // others by the time they arrive.
  struct Back {
    std::weak_ptr<VerbsReads> reads;
  };
  auto back = std::make_shared<Back>();
  const auto alive = std::weak_ptr(alive_);
  VerbsReads::Events events;
  events.draining = [this, back, alive, post = host_.post](std::uint32_t queue) {
    post([this, reads = back->reads.lock(), alive, queue] {
      if (alive.lock() && reads) on_draining(reads, queue);
    });
  };
  events.drained = [this, back, alive, post = host_.post](std::uint32_t queue, std::optional<Error> cause) {
    post([this, reads = back->reads.lock(), alive, queue, cause = std::move(cause)] {
      if (alive.lock() && reads) on_drained(reads, queue, cause);
    });
  };
  reads_ = std::make_shared<VerbsReads>(host_.device, table_, host_.counters, channel_.peer().brief(),
                                        std::move(events));
  back->reads = reads_;
}

Viability VerbsLink::viability(MemoryKind source, MemoryKind destination) const {
  const auto no = [](const std::string& why) { return Viability{false, "not viable, because " + why}; };
  if (!source.is_host() || !destination.is_host()) {
    return no("it moves host memory only in this version, not " + to_string(source) + " to " +
              to_string(destination));
  }
  if (const std::optional<Error> error = obstacle()) return no(error->message());
  const DeviceChoice& choice = host_.device->choice();
  const std::uint32_t mtu = 128U << std::min(host_.device->port().mtu, peer_.port.mtu);
  std::string text = choice.device + " port " + std::to_string(choice.port);
  if (choice.link_layer == IBV_LINK_LAYER_ETHERNET) {
    text += ", RoCE v2, " + to_string(choice.gid) + " → " + to_string(peer_.port.gid);
  } else {
    text += ", InfiniBand, LID " + std::to_string(choice.lid) + " → " + std::to_string(peer_.port.lid);
  }
  text += ", MTU " + std::to_string(mtu) + ", ";
  return {true, text + (state_ == State::up ? std::to_string(reads_->queues()) + " queue pairs"
                                            : std::string("not connected yet"))};
}

std::optional<Error> VerbsLink::obstacle() const {
  const auto because = [](ErrorKind kind, std::string why) {
    return std::move(Error(kind, std::move(why)).with_transport(kName));
  };
  if (closed_) return because(ErrorKind::closed, "the link to the peer is closed");
  if (!host_.problem.empty()) return because(ErrorKind::not_viable, host_.problem);
  if (const std::string why = mismatch(); !why.empty()) return because(ErrorKind::not_viable, why);
  if (!reads_) return because(ErrorKind::not_viable, "there is no RDMA device in use");
  // A single region without a key is a matter of the reads of it.
  const bool none_usable =
      !memories_.empty() && std::all_of(memories_.begin(), memories_.end(),
                                        [](const auto& each) { return each.second.problem.has_value(); });
  if (none_usable) return problem_of(memories_.begin()->first);
  if (state_ == State::failed) {
    const auto left = retry_at_ - std::chrono::steady_clock::now();
    return because(ErrorKind::not_viable,
                   failure_ + "; trying again " +
                       (left.count() > 0 ? "in " + format_duration(left) : std::string("now")));
  }
  return std::nullopt;
}

std::optional<Error> VerbsLink::problem_of(std::uint32_t memory) const {
  const std::optional<Error>& problem = memories_.at(memory).problem;
  if (!problem) return std::nullopt;
  return std::move(Error(problem->kind(), "the sender gave no key for its memory " + std::to_string(memory) +
                                              ": " + problem->message())
                       .with_transport(kName));
}

Status VerbsLink::attach(ImportedMemory memory) {
  if (!memory.kind.is_host()) {
    return Error(ErrorKind::protocol, "verbs memory was announced as " + to_string(memory.kind));
  }
  if (memory.token != verbs_link::make_token() || !memory.descriptors.empty()) {
    return Error(ErrorKind::protocol,
                 "verbs memory " + std::to_string(memory.memory) +
                     " came with a token that is not this version's, or with descriptors");
  }
  if (memory.size == 0) {
    return Error(ErrorKind::protocol, "verbs memory " + std::to_string(memory.memory) + " has no bytes");
  }
  if (memories_.size() >= kMaxVerbsMemories) {
    return Error(ErrorKind::busy,
                 "the peer announced more than " + std::to_string(kMaxVerbsMemories) + " memories");
  }
  if (!memories_.emplace(memory.memory, Memory{memory.size, nullptr, std::nullopt}).second) {
    return Error(ErrorKind::protocol, "memory " + std::to_string(memory.memory) + " was announced twice");
  }
  highest_memory_ = std::max(highest_memory_, memory.memory);
  if (state_ == State::idle) {
    // On one host shared memory is nearly always the way: queue pairs are made when they are wanted.
    if (!channel_.same_host()) connect_missing();
  } else if (state_ != State::failed) {
    channel_.send(verbs_wire::encode(verbs_wire::Keys{{memory.memory}}));
  }
  return {};
}

void VerbsLink::detach(std::uint32_t memory) {
  if (memories_.erase(memory) == 0) return;
  stop_waiting(memory, Error(ErrorKind::lease_lost, "the sender has withdrawn the memory that was read")
                           .with_transport(kName));
}

void VerbsLink::stop_waiting(std::uint32_t memory, const Error& why) {
  std::vector<ReadId> ended;
  for (const auto& [id, request] : waiting_) {
    const bool uses = std::any_of(request.from.begin(), request.from.end(),
                                  [&](const RemoteRange& range) { return range.memory == memory; });
    if (uses) ended.push_back(id);
  }
  for (const ReadId id : ended) {
    if (reads_) reads_->stop(id, why);
  }
  std::erase_if(waiting_, [&](const auto& each) {
    return std::find(ended.begin(), ended.end(), each.first) != ended.end();
  });
}

Status VerbsLink::on_message(std::string_view message) {
  STAGEWIRE_ASSIGN(verbs_wire::Message decoded, verbs_wire::decode(message));
  if (closed_) return {};
  struct Visitor {
    VerbsLink& link;
    Status operator()(verbs_wire::Connect& m) const { return link.on_connect(m); }
    Status operator()(verbs_wire::Connected& m) const { return link.on_connected(std::move(m)); }
    Status operator()(verbs_wire::Refused& m) const { return link.on_refused(m); }
    Status operator()(verbs_wire::Drop& m) const { return link.on_drop(m); }
    Status operator()(verbs_wire::Keys& m) const { return link.on_keys(m); }
    Status operator()(verbs_wire::Key& m) const { return link.on_key(std::move(m)); }
    Status operator()(verbs_wire::NoKey& m) const { return link.on_no_key(m); }
    Status operator()(verbs_wire::Renewed& m) const { return link.on_renewed(m); }
  };
  return std::visit(Visitor{*this}, decoded);
}

Result<Link::View> VerbsLink::view(std::span<const RemoteRange> /*from*/) {
  return Error(ErrorKind::not_viable, "verbs cannot hand out a peer's memory; read it into a destination");
}

// --- Reads.

ReadId VerbsLink::read(ReadRequest request, ReadDone done) {
  const ReadId id = table_->add(std::move(done));
  if (id == 0) return 0;
  const auto refuse = [&](const Error& error) {
    table_->finish(id, Error(error).with_transport(kName));
    return id;
  };
  const auto total = check_request(request);
  if (!total.ok()) return refuse(total.error());
  for (const RemoteRange& range : request.from) {
    const auto found = memories_.find(range.memory);
    if (found == memories_.end()) return refuse(unknown_memory(range.memory, kName));
    const Status within = check_within(range, found->second.size);
    if (!within.ok()) return refuse(within.error());
  }
  if (*total == 0) {
    table_->finish(id, {});
    return id;
  }
  if (const std::optional<Error> error = obstacle()) return refuse(*error);
  for (const RemoteRange& range : request.from) {
    if (const std::optional<Error> error = problem_of(range.memory)) return refuse(*error);
  }
  reads_->begin(id);
  waiting_.emplace_back(id, std::move(request));
  if (state_ == State::idle) connect_missing();
  try_waiting();
  return id;
}

void VerbsLink::try_waiting() {
  if (state_ != State::up || closed_) return;
  for (auto& [id, request] : std::exchange(waiting_, {})) {
    if (!reads_->running(id)) continue;  // stopped while it waited
    const bool has_keys =
        std::all_of(request.from.begin(), request.from.end(),
                    [this](const RemoteRange& range) { return memories_.at(range.memory).keys != nullptr; });
    if (has_keys) {
      run(id, std::move(request));
    } else {
      waiting_.emplace_back(id, std::move(request));
    }
  }
}

void VerbsLink::run(ReadId id, ReadRequest request) {
  ReadMemories memories;
  for (const RemoteRange& range : request.from) {
    if (!memories.empty() && memories.back().first == range.memory) continue;
    if (find_memory(&memories, range.memory) != nullptr) continue;
    memories.emplace_back(range.memory, memories_.at(range.memory).keys);
  }
  const std::vector<LocalMemory>* local = host_.registrations->find_local(request.to);
  const std::shared_ptr<VerbsDevice>& device = host_.device;
  if (local != nullptr && request.from.size() + request.to.size() <= kPlannedOnLoop) {
    Result<ReadPlan> plan =
        plan_read(request.from, request.to, find_memory, &memories, *local, limits_of(*device));
    if (!plan.ok()) {
      reads_->stop(id, plan.error());
      return;
    }
    return reads_->run(id, std::move(*plan), nullptr);
  }
  // Memory of the caller's own is registered for this read alone: nobody tells when it is unmapped.
  device->helper().post("registering a destination",
                        [id, request = std::move(request), memories = std::move(memories), reads = reads_,
                         device, registered = local != nullptr ? std::optional(*local) : std::nullopt] {
                          if (!reads->running(id)) return;
                          std::shared_ptr<const ReadRegistrations> own;
                          if (!registered) {
                            auto made = ReadRegistrations::make(device, request.to);
                            if (!made.ok()) {
                              reads->stop(id, made.error());
                              return;
                            }
                            own = std::move(*made);
                          }
                          Result<ReadPlan> plan =
                              plan_read(request.from, request.to, find_memory, &memories,
                                        registered ? *registered : own->memory(), limits_of(*device));
                          if (!plan.ok()) {
                            reads->stop(id, plan.error());
                            return;
                          }
                          reads->run(id, std::move(*plan), std::move(own));
                        });
}

void VerbsLink::abort(ReadId id, std::function<void()> settled) {
  if (!table_->when_settled(id, std::move(settled)) || !reads_) return;
  const Error cancelled = Error(ErrorKind::cancelled, "the read was stopped").with_transport(kName);
  if (!reads_->stop(id, cancelled)) return;
  // Its window is small; most often it is through by itself before anything has to be broken for it.
  call_in(host_.options.abort_fence, guarded([reads = reads_, id] { reads->fence(id); }));
}

bool VerbsLink::is_of_path(const Error& error) const {
  switch (error.kind()) {
    case ErrorKind::peer_lost:
    case ErrorKind::lease_lost:  // the adapter was refused the memory; whether the lease lives is another
                                 // matter
    case ErrorKind::not_viable:
    case ErrorKind::busy:
    case ErrorKind::deadline_exceeded:  // of connecting
    case ErrorKind::io:
    case ErrorKind::internal:
      return true;
    default:
      return false;
  }
}

void VerbsLink::fail_reads(const Error& why) {
  waiting_.clear();
  if (!reads_) return;
  reads_->stop_all(why);
  call_in(host_.options.abort_fence, guarded([reads = reads_] { reads->fence_all(); }));
}

void VerbsLink::close(std::function<void()> closed) {
  closed_ = true;
  host_.loop.cancel(std::exchange(retry_timer_, 0));
  host_.loop.cancel(std::exchange(idle_timer_, 0));
  end_pending();
  for (auto& [request, served] : served_) destroy(std::move(served.pairs));
  served_.clear();
  table_->refuse_new();
  fail_reads(Error(ErrorKind::peer_lost, "the session to the peer has ended").with_transport(kName));
  table_->when_empty([reads = reads_, closed = std::move(closed)] {
    // The last read may have ended on the poller's or the helper's thread.
    if (reads) destroy(reads->take_all());
    closed();
  });
}

// --- The device.

void VerbsLink::on_device() {
  make_reads();
  channel_.send(verbs_wire::encode(verbs_wire::Renewed{host_.device->port()}));
  state_ = State::idle;
  retry_delay_ = host_.options.retry_first;
  if (!memories_.empty()) connect_missing();
  channel_.viability_changed();
}

void VerbsLink::on_device_lost(const Error& why) {
  end_pending();
  host_.loop.cancel(std::exchange(retry_timer_, 0));
  state_ = State::idle;
  fail_reads(why);
  if (reads_) reads_->drain_all();
  reads_ = nullptr;
  for (const auto& [queue, remote] : remotes_)
    channel_.send(verbs_wire::encode(verbs_wire::Drop{remote.request, remote.qpn}));
  remotes_.clear();
  for (auto& [request, served] : served_) destroy(std::move(served.pairs));
  served_.clear();
  channel_.viability_changed();
}

void VerbsLink::on_problem() {
  channel_.viability_changed();
}

}  // namespace stagewire
