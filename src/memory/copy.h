// The one copy primitive. Copies between lists of ranges, split by bytes (never by tensor) over a persistent
// pool of worker threads, with non-temporal stores above a measured size. Used by put's gather pass, by shm
// reads and by every other large host copy. Thread-safe; owned by the node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <stagewire/base/result.h>

namespace stagewire {

/// One contiguous piece of a copy. Ranges of one job must not overlap each other in their destinations.
struct CopyRange {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t size = 0;  ///< bytes
};

/// A shared pool of copy workers. Jobs are cut into pieces of about 1 MiB, and the workers take pieces from
/// all jobs in turn, so that a huge job does not keep small ones waiting. Idle workers sleep.
class CopyEngine {
 public:
  /// `threads` is the most threads that work on one job: copy() uses its caller and threads − 1 workers,
  /// copy_async `threads` workers. 0 chooses min(4, CPUs this process may use). Where the system gives no
  /// thread at all, every copy runs on its caller.
  explicit CopyEngine(unsigned threads);
  /// Finishes all jobs first (cancel them to be quick).
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  unsigned threads() const noexcept;

  /// Copies all ranges; the calling thread takes part; returns when every byte is there.
  void copy(std::span<const CopyRange> ranges);

  /// Copies on the workers without a thread waiting. `done(true)` runs on a worker thread (on the calling
  /// thread, before this returns, when the job is small or there are no workers) once all bytes are there;
  /// `done(false)` runs on a worker thread once no worker touches the job any more after cancel(). Exactly
  /// once, never under a lock; it must not throw or block, for it holds up a worker.
  using Done = std::function<void(bool complete)>;
  using JobId = std::uint64_t;
  JobId copy_async(std::vector<CopyRange> ranges, Done done);
  /// Asks a job to stop at the next piece (≤ 1 ms of copying). Its `done` still runs. Unknown ids are
  /// ignored.
  void cancel(JobId id);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stagewire
