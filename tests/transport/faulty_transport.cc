// See faulty_transport.h. Each read has a record that its callbacks share; the record knows whether the inner
// transport runs it, and the promises of Link (done once, settled after it, closed last) are kept by the same
// table that the real transports use.
#include "faulty_transport.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/read_table.h"

namespace stagewire::testing_support {

namespace {

Error default_error() {
  return Error(ErrorKind::peer_lost, "a planned fault ended the read");
}

// The first `bytes` bytes of a request.
ReadRequest shorten(const ReadRequest& request, std::uint64_t bytes) {
  ReadRequest result;
  result.lease = request.lease;
  std::uint64_t left = bytes;
  for (RemoteRange range : request.from) {
    range.length = std::min(range.length, left);
    left -= range.length;
    result.from.push_back(range);
  }
  left = bytes;
  for (LocalRange range : request.to) {
    range.length = std::min(range.length, left);
    left -= range.length;
    result.to.push_back(range);
  }
  return result;
}

class FaultyLink final : public Link {
 public:
  FaultyLink(std::unique_ptr<Link> inner, std::shared_ptr<FaultPlan> plan)
      : state_(std::make_shared<State>()), plan_(std::move(plan)) {
    state_->inner = std::move(inner);
  }

  Viability viability(MemoryKind source, MemoryKind destination) const override {
    return state_->inner->viability(source, destination);
  }
  Status attach(ImportedMemory memory) override { return state_->inner->attach(std::move(memory)); }
  void detach(std::uint32_t memory) override { state_->inner->detach(memory); }
  Status on_message(std::string_view message) override { return state_->inner->on_message(message); }
  Result<View> view(std::span<const RemoteRange> from) override { return state_->inner->view(from); }
  Status adopt(Fd connection, std::uint64_t index) override {
    return state_->inner->adopt(std::move(connection), index);
  }

  ReadId read(ReadRequest request, ReadDone done) override {
    const ReadId id = state_->table.add(std::move(done));
    if (id == 0) return 0;
    const Fault fault = plan_->take();
    const Error error = fault.error.value_or(default_error());
    switch (fault.kind) {
      case Fault::Kind::none:
        start(id, std::move(request), Status());
        break;
      case Fault::Kind::truncate: {
        ReadRequest shorter = shorten(request, fault.bytes);
        start(id, std::move(shorter), error);
        break;
      }
      case Fault::Kind::fail:
        finish(id, error);
        break;
      case Fault::Kind::drop:
        hang(id);
        break;
      case Fault::Kind::delay:
        hang(id);
        // Started on the thread that releases it, which has to be the loop's.
        plan_->when_released([this, state = state_, id, request = std::move(request)] {
          if (state->unhang(id)) start(id, request, Status());
        });
        break;
    }
    return id;
  }

  void abort(ReadId id, std::function<void()> settled) override {
    auto frozen = [plan = plan_, settled = std::move(settled)] { plan->pass("before_settle", settled); };
    if (!state_->table.when_settled(id, std::move(frozen))) return;
    if (state_->unhang(id)) {
      finish(id, Error(ErrorKind::cancelled, "the read was aborted"));
      return;
    }
    ReadId inner_id = 0;
    {
      const std::lock_guard lock(state_->mutex);
      const auto found = state_->inner_ids.find(id);
      if (found == state_->inner_ids.end()) return;
      inner_id = found->second;
    }
    state_->inner->abort(inner_id, [] {});
  }

  void close(std::function<void()> closed) override {
    state_->table.refuse_new();
    for (const ReadId id : state_->table.running()) {
      if (state_->unhang(id)) finish(id, Error(ErrorKind::peer_lost, "the link was closed"));
    }
    state_->inner->close([state = state_, closed = std::move(closed)] { state->table.when_empty(closed); });
  }

 private:
  struct State {
    std::unique_ptr<Link> inner;
    ReadTable table;
    std::mutex mutex;
    std::unordered_map<ReadId, ReadId> inner_ids;
    std::unordered_map<ReadId, bool> hanging;

    bool unhang(ReadId id) {
      const std::lock_guard lock(mutex);
      return hanging.erase(id) != 0;
    }
  };

  void hang(ReadId id) {
    const std::lock_guard lock(state_->mutex);
    state_->hanging.emplace(id, true);
  }

  void finish(ReadId id, Status status) {
    plan_->pass("before_done",
                [state = state_, id, status = std::move(status)] { state->table.finish(id, status); });
  }

  // Runs the read; a success ends with `after` instead.
  void start(ReadId id, ReadRequest request, Status after) {
    const ReadId inner_id =
        state_->inner->read(std::move(request), [state = state_, plan = plan_, id, after](Status status) {
          Status result = status.ok() ? after : std::move(status);
          plan->pass("before_done", [state, id, result] {
            {
              const std::lock_guard lock(state->mutex);
              state->inner_ids.erase(id);
            }
            state->table.finish(id, result);
          });
        });
    const std::lock_guard lock(state_->mutex);
    const auto running = state_->table.running();
    if (std::find(running.begin(), running.end(), id) != running.end()) state_->inner_ids[id] = inner_id;
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace

void FaultPlan::next_read(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

Fault FaultPlan::take() {
  const std::lock_guard lock(mutex_);
  if (faults_.empty()) return {};
  Fault fault = std::move(faults_.front());
  faults_.pop_front();
  return fault;
}

void FaultPlan::release_delayed() {
  std::vector<std::function<void()>> starts;
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
    starts.swap(delayed_);
  }
  for (const auto& start : starts) start();
}

void FaultPlan::when_released(std::function<void()> start) {
  {
    const std::lock_guard lock(mutex_);
    if (!released_) {
      delayed_.push_back(std::move(start));
      return;
    }
  }
  start();
}

void FaultPlan::freeze(const std::string& point) {
  const std::lock_guard lock(mutex_);
  points_[point].frozen = true;
}

void FaultPlan::thaw(const std::string& point) {
  std::vector<std::function<void()>> held;
  {
    const std::lock_guard lock(mutex_);
    points_[point].frozen = false;
    held.swap(points_[point].held);
  }
  for (const auto& go_on : held) go_on();
}

bool FaultPlan::wait_frozen(const std::string& point, std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return points_[point].reached >= count; });
}

void FaultPlan::pass(const std::string& point, std::function<void()> go_on) {
  {
    const std::lock_guard lock(mutex_);
    Point& at = points_[point];
    if (at.frozen) {
      ++at.reached;
      at.held.push_back(std::move(go_on));
      changed_.notify_all();
      return;
    }
  }
  go_on();
}

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, std::shared_ptr<FaultPlan> plan)
    : inner_(std::move(inner)), plan_(std::move(plan)) {}

Result<MemoryToken> FaultyTransport::export_memory(const ExportedMemory& memory) {
  return inner_->export_memory(memory);
}

Result<std::unique_ptr<Link>> FaultyTransport::connect(LinkChannel& channel, std::string_view peer_hello) {
  STAGEWIRE_ASSIGN(std::unique_ptr<Link> inner, inner_->connect(channel, peer_hello));
  return std::unique_ptr<Link>(std::make_unique<FaultyLink>(std::move(inner), plan_));
}

}  // namespace stagewire::testing_support
