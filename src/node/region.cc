// See region.h.
#include <utility>

#include <stagewire/node/region.h>

#include "node/core.h"
#include "node/region_state.h"

namespace stagewire {

Region::Region(std::unique_ptr<State> state) : state_(std::move(state)) {}

Region::~Region() {
  if (state_->fork_guard.forked()) {
    static_cast<void>(state_.release());  // the memory and everything that reads it are the parent's
    return;
  }
  if (const Status closed = close(Deadline::in(state_->grace)); !closed.ok())
    state_->log->error(closed.error().to_string());
}

const std::byte* Region::data() const noexcept {
  return state_->data;
}
std::uint64_t Region::size() const noexcept {
  return state_->size;
}
const std::string& Region::name() const noexcept {
  return state_->name;
}

bool Region::closed() const noexcept {
  if (state_->fork_guard.forked()) return true;  // the lock may be held for ever
  const std::lock_guard lock(state_->mutex);
  return state_->use == nullptr || state_->mailbox->closed();
}

Status Region::close(Deadline deadline) {
  STAGEWIRE_TRY(state_->fork_guard.check());
  if (state_->take_use() != nullptr) {
    state_->mailbox->post(
        [core = state_->core, memory = state_->memory] { core->drop_region(memory, EndReason::cancelled); });
  }
  if (state_->over.wait(deadline).ok()) return {};
  return std::move(
      Error(ErrorKind::deadline_exceeded,
            "'" + state_->name +
                "' may still be read by a peer's adapter or a running send; its memory must not be "
                "written or freed yet, and close() can be called again to wait longer")
          .with_operation("close region"));
}

}  // namespace stagewire
