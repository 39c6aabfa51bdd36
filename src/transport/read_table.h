// The running reads of one link: their completions and who waits for them to settle. Keeps the promises of
// Link::read, abort and close in one place: `done` runs exactly once, `settled` after it, `closed` last, none
// under a lock. Thread-safe; owned by a link.
#pragma once

#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace stagewire {

class ReadTable {
 public:
  ReadTable() = default;
  ReadTable(const ReadTable&) = delete;
  ReadTable& operator=(const ReadTable&) = delete;

  /// Enters a read and gives it an id, never 0. After close() gives 0, and `done` has run with `closed`.
  ReadId add(ReadDone done);
  /// The read is over and its destination is let go: runs `done`, then what waits for it to settle. The
  /// caller calls it once for each id.
  void finish(ReadId id, const Status& status);
  /// Runs `settled` once the read has finished; at once if it is unknown or over. True if the read still
  /// runs, so that the caller has something to stop.
  bool when_settled(ReadId id, std::function<void()> settled);
  /// The reads that run now.
  std::vector<ReadId> running() const;
  /// Refuses new reads from now on.
  void refuse_new();
  /// Runs `closed` once no read is left; at once if there is none.
  void when_empty(std::function<void()> closed);

 private:
  struct Entry {
    ReadDone done;
    std::vector<std::function<void()>> settled;
    bool finishing = false;  // `done` is running or has run; the entry stays so that abort() waits for it
  };

  mutable std::mutex mutex_;
  ReadId next_ = 1;
  bool refusing_ = false;
  std::unordered_map<ReadId, Entry> reads_;
  std::function<void()> when_empty_;
};

}  // namespace stagewire
