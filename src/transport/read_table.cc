// See read_table.h. Callbacks are always moved out of the table before they run, because they may call back.
#include "transport/read_table.h"

#include <utility>

namespace stagewire {

ReadId ReadTable::add(ReadDone done) {
  {
    const std::lock_guard lock(mutex_);
    if (!refusing_) {
      const ReadId id = next_++;
      reads_[id].done = std::move(done);
      return id;
    }
  }
  done(Error(ErrorKind::closed, "the link to the peer is closed"));
  return 0;
}

void ReadTable::finish(ReadId id, const Status& status) {
  ReadDone done;
  {
    const std::lock_guard lock(mutex_);
    const auto found = reads_.find(id);
    if (found == reads_.end() || found->second.finishing) return;
    found->second.finishing = true;
    done = std::move(found->second.done);
  }
  done(status);
  done = nullptr;  // what it holds goes before anybody is told that the read has settled
  std::vector<std::function<void()>> settled;
  std::function<void()> empty;
  {
    const std::lock_guard lock(mutex_);
    const auto found = reads_.find(id);
    settled = std::move(found->second.settled);
    reads_.erase(found);
    if (reads_.empty()) empty = std::exchange(when_empty_, nullptr);
  }
  for (const auto& callback : settled) callback();
  if (empty) empty();
}

bool ReadTable::when_settled(ReadId id, std::function<void()> settled) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = reads_.find(id);
    if (found != reads_.end()) {
      found->second.settled.push_back(std::move(settled));
      return !found->second.finishing;
    }
  }
  settled();
  return false;
}

std::vector<ReadId> ReadTable::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<ReadId> ids;
  for (const auto& [id, entry] : reads_) {
    if (!entry.finishing) ids.push_back(id);
  }
  return ids;
}

void ReadTable::refuse_new() {
  const std::lock_guard lock(mutex_);
  refusing_ = true;
}

void ReadTable::when_empty(std::function<void()> closed) {
  {
    const std::lock_guard lock(mutex_);
    if (!reads_.empty()) {
      when_empty_ = std::move(closed);
      return;
    }
  }
  closed();
}

}  // namespace stagewire
