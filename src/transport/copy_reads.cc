// See copy_reads.h.
#include "transport/copy_reads.h"

#include <algorithm>
#include <utility>

namespace stagewire {

std::vector<CopyRange> cut_copies(std::span<const MappedRange> from, std::span<const LocalRange> to) {
  std::vector<CopyRange> pieces;
  pieces.reserve(from.size() + to.size());
  std::size_t next_to = 0;
  std::uint64_t used = 0;  // bytes of to[next_to] that are spoken for
  for (const MappedRange& source : from) {
    std::uint64_t taken = 0;
    while (taken < source.length) {
      const LocalRange& target = to[next_to];
      const std::uint64_t size = std::min(source.length - taken, target.length - used);
      if (size != 0) pieces.push_back({source.data + taken, target.data + used, size});
      taken += size;
      used += size;
      if (used == target.length) {
        ++next_to;
        used = 0;
      }
    }
  }
  return pieces;
}

CopyReads::CopyReads(CopyEngine& engine) : engine_(engine), state_(std::make_shared<State>()) {}

ReadId CopyReads::start(std::span<const MappedRange> from, std::span<const LocalRange> to,
                        std::shared_ptr<const void> hold, ReadDone done) {
  std::uint64_t total = 0;
  for (const MappedRange& range : from) total += range.length;
  std::vector<CopyRange> pieces = cut_copies(from, to);
  const ReadId id = state_->table.add(std::move(done));
  if (id == 0) return id;
  if (total <= kInlineSize) {
    engine_.copy(pieces);
    state_->table.finish(id, Status());
    return id;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->running.emplace(id, State::Running());
  }
  const CopyEngine::JobId job = engine_.copy_async(
      std::move(pieces), [state = state_, id, hold = std::move(hold)](bool complete) mutable {
        hold.reset();
        end(*state, id, complete);
      });
  // The job may be over by now; abort() runs on this thread, so it cannot have missed the number.
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->running.find(id); found != state_->running.end()) found->second.job = job;
  return id;
}

void CopyReads::end(State& state, ReadId id, bool complete) {
  ErrorKind stopped = ErrorKind::cancelled;
  {
    const std::lock_guard lock(state.mutex);
    const auto found = state.running.find(id);
    stopped = found->second.stopped;
    state.running.erase(found);
  }
  if (complete) {
    state.table.finish(id, Status());
  } else if (stopped == ErrorKind::cancelled) {
    state.table.finish(id, Error(stopped, "the read was aborted"));
  } else {
    state.table.finish(id, Error(stopped, "the link to the peer was closed during the read"));
  }
}

ReadId CopyReads::refuse(Error error, ReadDone done) {
  const ReadId id = state_->table.add(std::move(done));
  if (id != 0) state_->table.finish(id, std::move(error));
  return id;
}

void CopyReads::abort(ReadId id, std::function<void()> settled) {
  if (!state_->table.when_settled(id, std::move(settled))) return;
  CopyEngine::JobId job = 0;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->running.find(id);
    if (found == state_->running.end()) return;  // its completion is on the way
    job = found->second.job;
  }
  engine_.cancel(job);
}

void CopyReads::close(std::function<void()> closed) {
  state_->table.refuse_new();
  std::vector<CopyEngine::JobId> jobs;
  {
    const std::lock_guard lock(state_->mutex);
    for (auto& [id, running] : state_->running) {
      running.stopped = ErrorKind::peer_lost;
      jobs.push_back(running.job);
    }
  }
  for (const CopyEngine::JobId job : jobs) engine_.cancel(job);
  state_->table.when_empty(std::move(closed));
}

}  // namespace stagewire
