// See copy.h. One mutex guards the list of jobs and is taken once per piece, which is about 100 µs of
// copying; the copying itself runs without it. Workers are owned by the engine and joined by its destructor.
#include "memory/copy.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <sched.h>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "memory/copy_kernels.h"
#include "memory/thread_start.h"

namespace stagewire {

namespace {

// Measured with bench/memory/copy_bench. A piece is about 100 µs of copying, long against a lock and a
// wake-up and short against a large job, so that threads finish together. A job below kInlineSize is over
// before a sleeping worker could have helped.
constexpr std::size_t kPieceSize = std::size_t{1} << 20U;
constexpr std::size_t kInlineSize = std::size_t{256} << 10U;

// From this size of a job on, streaming stores win even when the destination is read right after the copy
// (copying and reading 512 KiB: 104 µs with either kind of store, 8 MiB: 2148 against 1660 µs).
constexpr std::size_t kStreamingSize = std::size_t{512} << 10U;
// Within such a job, ranges down to this size gain from them (1 KiB: 8.2 against 5.1 GB/s).
constexpr std::size_t kStreamingRange = std::size_t{1} << 10U;

constexpr unsigned kMostDefaultThreads = 4;

unsigned usable_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

void copy_range(const CopyRange& range, CopyKernel streaming) {
  if (range.size == 0) return;
  if (range.size >= kStreamingRange)
    streaming(range.to, range.from, range.size);
  else
    plain_kernel().copy(range.to, range.from, range.size);
}

std::size_t total_size(std::span<const CopyRange> ranges) noexcept {
  std::size_t total = 0;
  for (const CopyRange& range : ranges) total += range.size;
  return total;
}

// A list of ranges as one string of bytes that can be cut anywhere.
class Script {
 public:
  explicit Script(std::span<const CopyRange> ranges) : ranges_(ranges) {
    ends_.reserve(ranges.size());
    for (const CopyRange& range : ranges) ends_.push_back(total_ += range.size);
  }

  std::size_t total() const noexcept { return total_; }

  // Copies bytes [from, to) of the string.
  void copy(std::size_t from, std::size_t to, CopyKernel kernel) const {
    auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), from) - ends_.begin());
    while (from < to) {
      const CopyRange& range = ranges_[at];
      const std::size_t start = ends_[at] - range.size;
      const std::size_t skip = from - start;
      const std::size_t size = std::min(range.size - skip, to - from);
      copy_range({range.from + skip, range.to + skip, size}, kernel);
      from += size;
      ++at;
    }
  }

 private:
  std::span<const CopyRange> ranges_;
  std::vector<std::size_t> ends_;
  std::size_t total_ = 0;
};

struct Job {
  explicit Job(std::span<const CopyRange> list) : script(list) {}
  explicit Job(std::vector<CopyRange> list) : owned(std::move(list)), script(owned) {}

  std::vector<CopyRange> owned;
  Script script;
  CopyKernel kernel = nullptr;
  CopyEngine::JobId id = 0;
  CopyEngine::Done done;  // empty for a job that copy() waits for
  unsigned most_workers = 1;
  // Guarded by the engine's mutex.
  std::size_t claimed = 0;  // bytes given to a thread
  std::size_t copied = 0;   // bytes in place
  unsigned workers = 0;     // workers that hold a piece
  bool cancelled = false;
  std::condition_variable finished;  // for copy()

  bool claimable() const noexcept { return !cancelled && claimed < script.total(); }
};

}  // namespace

struct CopyEngine::State {
  ForkGuard fork_guard;
  unsigned threads = 1;
  StreamingKernel streaming = streaming_kernel();
  std::mutex mutex;
  std::condition_variable work;
  std::deque<std::shared_ptr<Job>> queue;  // jobs with something to claim, next in turn first
  std::deque<std::shared_ptr<Job>> dead;   // cancelled while no worker held a piece: only `done` is left
  std::unordered_map<JobId, std::shared_ptr<Job>> async;
  JobId next_id = 1;
  bool stopping = false;
  std::vector<std::thread> workers;

  CopyKernel kernel_for(std::size_t total) const noexcept {
    return total >= kStreamingSize ? streaming.copy : plain_kernel().copy;
  }
  // Copies on the calling thread alone, without allocating.
  void copy_here(std::span<const CopyRange> ranges, std::size_t total) const {
    for (const CopyRange& range : ranges) copy_range(range, kernel_for(total));
    copy_fence();
  }
  void start_workers();
  void work_loop() noexcept;
  std::shared_ptr<Job> next_dead();
  std::shared_ptr<Job> next_job();
  void copy_piece(Job& job, std::unique_lock<std::mutex>& lock);
  void wake(std::size_t pieces);
};

void CopyEngine::State::start_workers() {
  workers.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    auto worker = start_thread("sw-copy-" + std::to_string(i), [this] { work_loop(); });
    if (!worker.ok()) return;
    workers.push_back(std::move(*worker));
  }
}

// Claims the next piece, copies it without the lock, and counts it. The job must be claimable.
void CopyEngine::State::copy_piece(Job& job, std::unique_lock<std::mutex>& lock) {
  const std::size_t from = job.claimed;
  const std::size_t to = from + std::min(kPieceSize, job.script.total() - from);
  job.claimed = to;
  lock.unlock();
  job.script.copy(from, to, job.kernel);
  copy_fence();
  lock.lock();
  job.copied += to - from;
}

// The next job in turn that may use one more worker; it goes to the end of the queue unless all of it is
// claimed.
std::shared_ptr<Job> CopyEngine::State::next_job() {
  for (auto at = queue.begin(); at != queue.end();) {
    if (!(*at)->claimable()) {
      at = queue.erase(at);
      continue;
    }
    if ((*at)->workers >= (*at)->most_workers) {
      ++at;
      continue;
    }
    auto job = *at;
    queue.erase(at);
    queue.push_back(job);
    return job;
  }
  return nullptr;
}

std::shared_ptr<Job> CopyEngine::State::next_dead() {
  if (dead.empty()) return nullptr;
  auto job = std::move(dead.front());
  dead.pop_front();
  return job;
}

void CopyEngine::State::work_loop() noexcept {
  std::unique_lock lock(mutex);
  for (;;) {
    std::shared_ptr<Job> job = next_dead();
    if (!job) {
      job = next_job();
      if (!job) {
        if (stopping) return;
        work.wait(lock);
        continue;
      }
      ++job->workers;
      copy_piece(*job, lock);
      --job->workers;
      if (job->workers != 0 || job->claimable()) continue;
    }
    // Nobody touches the job any more. The copying thread of copy() looks itself whether it was the last.
    if (!job->done) {
      job->finished.notify_all();
      continue;
    }
    async.erase(job->id);
    const bool complete = job->copied == job->script.total();
    const Done done = std::move(job->done);
    lock.unlock();
    job.reset();
    done(complete);
    lock.lock();
  }
}

void CopyEngine::State::wake(std::size_t pieces) {
  if (pieces >= workers.size())
    work.notify_all();
  else
    for (std::size_t i = 0; i < pieces; ++i) work.notify_one();
}

CopyEngine::CopyEngine(unsigned threads) : state_(std::make_unique<State>()) {
  state_->threads = threads != 0 ? threads : std::min(kMostDefaultThreads, usable_cpus());
  state_->start_workers();
}

CopyEngine::~CopyEngine() {
  if (state_->fork_guard.forked()) {
    // The workers do not exist in a forked child, and joining one would wait forever.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

unsigned CopyEngine::threads() const noexcept {
  return state_->threads;
}

void CopyEngine::copy(std::span<const CopyRange> ranges) {
  const std::size_t total = total_size(ranges);
  if (total <= kInlineSize || state_->threads == 1 || state_->workers.empty() ||
      state_->fork_guard.forked()) {
    state_->copy_here(ranges, total);
    return;
  }
  const auto job = std::make_shared<Job>(ranges);
  job->kernel = state_->kernel_for(total);
  job->most_workers = state_->threads - 1;
  std::unique_lock lock(state_->mutex);
  state_->queue.push_back(job);
  state_->wake(std::min<std::size_t>((total - 1) / kPieceSize, job->most_workers));
  while (job->claimable()) state_->copy_piece(*job, lock);
  job->finished.wait(lock, [&] { return job->workers == 0; });
  std::erase(state_->queue, job);
}

CopyEngine::JobId CopyEngine::copy_async(std::vector<CopyRange> ranges, Done done) {
  const std::size_t total = total_size(ranges);
  if (total <= kInlineSize || state_->workers.empty() || state_->fork_guard.forked()) {
    state_->copy_here(ranges, total);
    done(true);
    return 0;
  }
  auto job = std::make_shared<Job>(std::move(ranges));
  job->kernel = state_->kernel_for(total);
  job->most_workers = state_->threads;
  job->done = std::move(done);
  const std::lock_guard lock(state_->mutex);
  job->id = state_->next_id++;
  state_->async.emplace(job->id, job);
  const JobId id = job->id;
  state_->queue.push_back(std::move(job));
  state_->wake((total + kPieceSize - 1) / kPieceSize);
  return id;
}

void CopyEngine::cancel(JobId id) {
  if (state_->fork_guard.forked()) return;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->async.find(id);
  if (found == state_->async.end()) return;
  const std::shared_ptr<Job> job = found->second;
  if (!job->claimable()) return;
  job->cancelled = true;
  std::erase(state_->queue, job);
  // A worker that holds a piece ends the job when it comes back; otherwise one has to be sent.
  if (job->workers != 0) return;
  state_->dead.push_back(job);
  state_->work.notify_one();
}

}  // namespace stagewire
