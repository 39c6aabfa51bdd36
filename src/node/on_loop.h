// NodeCore::on_loop: a question to the loop from another thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/oneshot.h"
#include "node/core.h"

namespace stagewire {

template <typename T, typename F>
std::optional<T> NodeCore::on_loop(F task) {
  // Nothing on the loop takes longer than a millisecond; this only guards against a bug turning into a hang.
  constexpr std::chrono::seconds kGuard{5};
  Oneshot<T> answer = Oneshot<T>::make();
  const bool posted = mailbox_->post(
      [task = std::move(task), promise = std::move(answer.promise)]() mutable { promise.set(task()); });
  if (!posted || !answer.future.wait(Deadline::in(kGuard)).ok()) return std::nullopt;
  return answer.future.try_take();
}

}  // namespace stagewire
