// See pool.h. One mutex guards the allocator, the holders and the queue of waiters; results are delivered
// after it is released, on the thread that caused them. The background thread that touches the memory is
// owned by the pool and ends with it.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <stagewire/memory/pool.h>

#include "base/fd.h"
#include "base/units.h"
#include "memory/allocator.h"
#include "memory/memfd.h"

namespace stagewire {

namespace {

using SteadyClock = std::chrono::steady_clock;

static_assert(kBufferAlignment == Allocator::kGranularity);

constexpr std::size_t kMaxLabel = 120;
constexpr std::size_t kShownHolders = 3;

std::string format_holders(const std::vector<PoolHolder>& holders) {
  std::string text;
  for (const PoolHolder& holder : holders) {
    if (!text.empty()) text += ", ";
    text += "'" + holder.label + "' " + format_size(holder.bytes) + " for " + format_duration(holder.age);
  }
  return text;
}

}  // namespace

struct Pool::State {
  struct Holder {
    std::string label;
    std::uint64_t bytes = 0;  // 0: the slot holds nothing
    SteadyClock::time_point since;
  };

  struct Waiter {
    std::size_t size = 0;
    std::string label;
    AllocationDone done;
  };

  struct Ready {
    AllocationDone done;
    Result<Buffer> result;
  };

  // A thread that is running callbacks. What they cause on the same thread is queued here and not run inside
  // of them, so that a long chain of waiters needs no deep stack.
  struct Delivery {
    std::thread::id thread;
    std::vector<Ready> ready;
    std::size_t next = 0;
  };

  State(SealedMemory sealed, std::uint64_t size) : memory(std::move(sealed)), allocator(size) {}

  ForkGuard fork_guard;
  SealedMemory memory;
  mutable std::mutex mutex;
  Allocator allocator;
  std::vector<Holder> holders;             // by slot of the allocator
  std::map<AllocationId, Waiter> waiters;  // ids rise, so this is first come, first served
  std::vector<Delivery*> deliveries;
  AllocationId next_id = 1;
  std::uint64_t peak_used = 0;
  std::uint64_t failed = 0;
  std::uint64_t bad_releases = 0;
  bool closed = false;
  std::unique_ptr<BackgroundPopulate> touch;  // last: ends before the memory is unmapped

  // All below are called with the mutex held, deliver_ready without.
  std::optional<Buffer> take(const std::shared_ptr<Pool>& pool, std::size_t size, std::string& label);
  void grant_waiters(const std::shared_ptr<Pool>& pool, std::vector<Ready>& ready);
  Delivery* own_delivery() noexcept;
  PoolStats occupancy() const;
  PoolStats stats() const;
  Error exhausted(const PoolOptions& options, std::size_t size, std::size_t ahead) const;
  void deliver_ready(std::vector<Ready> ready) noexcept;
};

std::optional<Buffer> Pool::State::take(const std::shared_ptr<Pool>& pool, std::size_t size,
                                        std::string& label) {
  const auto allocation = allocator.allocate(size);
  if (!allocation) return std::nullopt;
  if (holders.size() <= allocation->slot) holders.resize(allocation->slot + 1);
  holders[allocation->slot] = {std::move(label), allocation->size, SteadyClock::now()};
  peak_used = std::max(peak_used, allocator.used());
  return Buffer(pool, pool->base_ + allocation->offset, size, allocation->offset, allocation->stamp,
                allocation->slot);
}

// Strictly in order: a later small request must not overtake, or a large one could wait forever.
void Pool::State::grant_waiters(const std::shared_ptr<Pool>& pool, std::vector<Ready>& ready) {
  while (!waiters.empty()) {
    auto first = waiters.begin();
    auto buffer = take(pool, first->second.size, first->second.label);
    if (!buffer) return;
    ready.push_back({std::move(first->second.done), std::move(*buffer)});
    waiters.erase(first);
  }
}

Pool::State::Delivery* Pool::State::own_delivery() noexcept {
  const auto self = std::this_thread::get_id();
  for (Delivery* delivery : deliveries)
    if (delivery->thread == self) return delivery;
  return nullptr;
}

void Pool::State::deliver_ready(std::vector<Ready> ready) noexcept {
  if (ready.empty()) return;
  Delivery delivery{std::this_thread::get_id(), std::move(ready), 0};
  {
    const std::lock_guard lock(mutex);
    if (Delivery* outer = own_delivery()) {
      std::move(delivery.ready.begin(), delivery.ready.end(), std::back_inserter(outer->ready));
      return;
    }
    deliveries.push_back(&delivery);
  }
  for (;;) {
    std::optional<Ready> now;
    {
      const std::lock_guard lock(mutex);
      if (delivery.next == delivery.ready.size()) {
        std::erase(deliveries, &delivery);
        return;
      }
      now.emplace(std::move(delivery.ready[delivery.next++]));
    }
    now->done(std::move(now->result));
  }
}

PoolStats Pool::State::occupancy() const {
  PoolStats stats;
  stats.size = allocator.size();
  stats.used = allocator.used();
  stats.largest_free = allocator.largest_free();
  stats.buffers = allocator.live();
  stats.waiting = waiters.size();
  stats.peak_used = peak_used;
  stats.failed = failed;
  stats.bad_releases = bad_releases;
  stats.touched = touch ? touch->done() : 0;
  return stats;
}

PoolStats Pool::State::stats() const {
  PoolStats stats = occupancy();
  std::vector<const Holder*> live;
  live.reserve(allocator.live());
  for (const Holder& holder : holders)
    if (holder.bytes != 0) live.push_back(&holder);
  const auto shown = static_cast<std::ptrdiff_t>(std::min(kShownHolders, live.size()));
  const auto now = SteadyClock::now();
  const auto pick = [&](std::vector<PoolHolder>& into, auto before) {
    std::partial_sort(live.begin(), live.begin() + shown, live.end(), before);
    for (auto at = live.begin(); at != live.begin() + shown; ++at)
      into.push_back({(*at)->label, (*at)->bytes, now - (*at)->since});
  };
  pick(stats.largest, [](const Holder* a, const Holder* b) { return a->bytes > b->bytes; });
  pick(stats.oldest, [](const Holder* a, const Holder* b) { return a->since < b->since; });
  return stats;
}

Error Pool::State::exhausted(const PoolOptions& options, std::size_t size, std::size_t ahead) const {
  const PoolStats now = stats();
  std::string text = "pool '" + options.name + "' has no " + format_size(size) +
                     " free: " + format_size(now.used) + " of " + format_size(now.size) + " are held by " +
                     std::to_string(now.buffers) + " buffers, the largest free range is " +
                     format_size(now.largest_free);
  if (ahead != 0) text += ", " + std::to_string(ahead) + " earlier requests wait";
  if (!now.largest.empty())
    text += "; largest holders: " + format_holders(now.largest) + "; oldest: " + format_holders(now.oldest);
  text += "; release payloads or views sooner, enlarge the pool, or wait longer";
  return Error(ErrorKind::pool_exhausted, std::move(text));
}

Pool::Pool(PoolOptions options) : options_(std::move(options)) {}

Result<std::shared_ptr<Pool>> Pool::create(PoolOptions options) {
  if (!options.kind.is_host())
    return Error(ErrorKind::invalid_argument, "pool '" + options.name + "' asks for " +
                                                  to_string(options.kind) +
                                                  " memory; this version has host pools only");
  // Receive pools are memfds as well: shared pages are not copied on a fork, so memory that a NIC writes to
  // stays this process's; hugetlb works the same way; and the seals keep even the kernel's /proc/<pid>/fd
  // from giving out a second writable mapping. Their descriptor is closed at once, so it can never be sent.
  STAGEWIRE_ASSIGN(SealedMemory memory, create_sealed(options.name, options.size, options.huge_pages));
  if (options.use == PoolUse::receive) memory.fd.reset();
  const bool touch = options.touch_in_background;
  std::shared_ptr<Pool> pool(new Pool(std::move(options)));
  pool->base_ = memory.mapping.data();
  pool->size_ = memory.mapping.size();
  pool->page_size_ = memory.page_size;
  pool->state_ = std::make_unique<State>(std::move(memory), pool->size_);
  if (touch) {
    STAGEWIRE_ASSIGN(pool->state_->touch, BackgroundPopulate::start(pool->state_->memory.mapping,
                                                                    BackgroundPopulate::Access::write));
  }
  return pool;
}

Pool::~Pool() {
  if (!state_) return;
  if (state_->fork_guard.forked()) {
    // The touching thread does not exist here and the mutex may be held by one that does not either.
    static_cast<void>(state_.release());
    return;
  }
  close();
}

Result<Buffer> Pool::allocate(std::size_t size, std::string label, Deadline deadline) {
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<Buffer>> result;
  };
  const auto self = shared_from_this();
  auto wait = std::make_shared<Wait>();
  const AllocationId id = allocate_async(size, std::move(label), [wait](Result<Buffer> result) {
    const std::lock_guard lock(wait->mutex);
    wait->result.emplace(std::move(result));
    wait->changed.notify_all();
  });
  std::unique_lock lock(wait->mutex);
  if (!wait->changed.wait_until(lock, deadline.at(), [&] { return wait->result.has_value(); })) {
    lock.unlock();
    cancel(id);
    lock.lock();
    // Whether cancelled or granted at this very moment: the result is there or just being delivered.
    wait->changed.wait(lock, [&] { return wait->result.has_value(); });
  }
  return std::move(*wait->result);
}

Pool::AllocationId Pool::allocate_async(std::size_t size, std::string label, AllocationDone done) {
  if (Status alive = state_->fork_guard.check(); !alive.ok()) {
    done(std::move(alive).error());
    return 0;
  }
  if (label.size() > kMaxLabel) label.resize(kMaxLabel);
  std::optional<Result<Buffer>> result;
  AllocationId id = 0;
  {
    const std::lock_guard lock(state_->mutex);
    id = state_->next_id++;
    if (state_->closed) {
      result.emplace(Error(ErrorKind::closed, "pool '" + name() + "' is closed"));
    } else if (size > size_) {
      result.emplace(Error(ErrorKind::too_large, "pool '" + name() + "' has " + format_size(size_) +
                                                     " in all and can never hold " + format_size(size) +
                                                     "; make the pool larger or the payload smaller"));
    } else if (state_->waiters.empty()) {
      if (auto buffer = state_->take(shared_from_this(), size, label)) result.emplace(std::move(*buffer));
    }
    if (!result) {
      state_->waiters.emplace(id, State::Waiter{size, std::move(label), std::move(done)});
      return id;
    }
    if (!result->ok()) ++state_->failed;
  }
  done(std::move(*result));
  return id;
}

bool Pool::cancel(AllocationId id) {
  if (state_->fork_guard.forked()) return false;
  const auto self = shared_from_this();  // a callback may drop the caller's reference
  AllocationDone done;
  std::optional<Error> error;
  std::vector<State::Ready> ready;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->waiters.find(id);
    if (found == state_->waiters.end()) return false;
    const auto ahead = static_cast<std::size_t>(std::distance(state_->waiters.begin(), found));
    error = state_->exhausted(options_, found->second.size, ahead);
    done = std::move(found->second.done);
    state_->waiters.erase(found);
    ++state_->failed;
    // Those behind a large request may fit now that it no longer stands before them.
    if (ahead == 0) state_->grant_waiters(self, ready);
  }
  done(std::move(*error));
  state_->deliver_ready(std::move(ready));
  return true;
}

void Pool::close() {
  if (state_->fork_guard.forked()) return;
  std::map<AllocationId, State::Waiter> waiters;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    waiters.swap(state_->waiters);
    state_->failed += waiters.size();
  }
  for (auto& [id, waiter] : waiters)
    waiter.done(Error(ErrorKind::closed, "pool '" + name() + "' was closed while waiting for memory"));
}

void Pool::free(std::uint32_t slot, std::uint64_t offset, std::uint64_t stamp) noexcept {
  if (state_->fork_guard.forked()) return;
  std::vector<State::Ready> ready;
  std::string label;  // freed after the lock is given back
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->allocator.release(slot, offset, stamp) != Allocator::Release::ok) {
      // Buffers release exactly once, so this is a broken invariant. The range stays as it is: memory in
      // doubt is kept, not handed out again.
      ++state_->bad_releases;
#ifndef NDEBUG
      std::fputs("stagewire: a pool buffer was released twice or is corrupt\n", stderr);
      std::abort();
#else
      return;
#endif
    }
    State::Holder& holder = state_->holders[slot];
    label.swap(holder.label);
    holder.bytes = 0;
    state_->grant_waiters(shared_from_this(), ready);
  }
  state_->deliver_ready(std::move(ready));
}

int Pool::memfd() const noexcept {
  return state_->memory.fd.get();
}

bool Pool::contains(const void* data, std::size_t size) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  return at >= base && at - base <= size_ && size <= size_ - (at - base);
}

PoolStats Pool::stats() const {
  if (state_->fork_guard.forked()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->stats();
}

PoolStats Pool::occupancy() const {
  if (state_->fork_guard.forked()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->occupancy();
}

Buffer::Buffer(std::shared_ptr<Pool> pool, std::byte* data, std::size_t size, std::uint64_t offset,
               std::uint64_t stamp, std::uint32_t slot) noexcept
    : pool_(std::move(pool)), data_(data), size_(size), offset_(offset), stamp_(stamp), slot_(slot) {}

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::move(other.pool_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      offset_(std::exchange(other.offset_, 0)),
      stamp_(std::exchange(other.stamp_, 0)),
      slot_(std::exchange(other.slot_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    offset_ = std::exchange(other.offset_, 0);
    stamp_ = std::exchange(other.stamp_, 0);
    slot_ = std::exchange(other.slot_, 0);
  }
  return *this;
}

Buffer::~Buffer() {
  release();
}

void Buffer::release() noexcept {
  if (!pool_) return;
  const std::shared_ptr<Pool> pool = std::move(pool_);
  data_ = nullptr;
  size_ = 0;
  pool->free(slot_, offset_, stamp_);
}

}  // namespace stagewire
