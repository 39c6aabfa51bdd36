// See block_cache.h.
#include "memory/block_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stagewire {

BlockCache::Block& BlockCache::Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    give_back();
    cache_ = std::move(other.cache_);
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void BlockCache::Block::give_back() noexcept {
  if (!cache_ || !memory_ || size_ > kLargest) return;
  if (cache_->fork_guard_.forked()) {
    static_cast<void>(
        memory_.release());  // the child's copy: the lock may be held by a thread it doesn't have
    return;
  }
  const std::lock_guard lock(cache_->mutex_);
  auto& kept = cache_->kept_[class_of(size_)];
  if (kept.size() < kept.capacity()) kept.push_back(std::move(memory_));
}

std::size_t BlockCache::class_of(std::size_t size) noexcept {
  return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(std::max(size, kSmallest)) / kSmallest));
}

BlockCache::Block BlockCache::take(std::size_t size) {
  if (size == 0) return {};
  if (size > kLargest) return {shared_from_this(), std::make_unique_for_overwrite<std::byte[]>(size), size};
  const std::size_t index = class_of(size);
  {
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[index];
    if (kept.capacity() == 0) kept.reserve(kKeptPerClass);
    if (!kept.empty()) {
      std::unique_ptr<std::byte[]> memory = std::move(kept.back());
      kept.pop_back();
      return {shared_from_this(), std::move(memory), size};
    }
  }
  return {shared_from_this(), std::make_unique_for_overwrite<std::byte[]>(kSmallest << index), size};
}

std::size_t BlockCache::kept() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& blocks : kept_) count += blocks.size();
  return count;
}

}  // namespace stagewire
