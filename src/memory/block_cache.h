// BlockCache: recycles small blocks of heap memory that one thread takes and another gives back. A general
// allocator is at its worst with that: a block freed by a thread that did not allocate it goes back, under a
// lock, to an arena that must look for the next one among everything that lives there (put and withdraw
// beside 10,000 inline payloads cost 1.7 times as much as beside none). Shared by the node and its blocks;
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/fd.h"

namespace stagewire {

class BlockCache : public std::enable_shared_from_this<BlockCache> {
 public:
  /// Blocks up to this size (bytes) are recycled; larger ones come from the heap and go back to it.
  static constexpr std::size_t kLargest = 8192;

  /// Uninitialized memory, given back when it is destroyed, on any thread. Movable; keeps its cache alive.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept = default;
    Block& operator=(Block&& other) noexcept;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { give_back(); }

    std::byte* data() noexcept { return memory_.get(); }
    std::span<const std::byte> bytes() const noexcept { return {memory_.get(), size_}; }

   private:
    friend class BlockCache;
    Block(std::shared_ptr<BlockCache> cache, std::unique_ptr<std::byte[]> memory, std::size_t size)
        : cache_(std::move(cache)), memory_(std::move(memory)), size_(size) {}
    void give_back() noexcept;

    std::shared_ptr<BlockCache> cache_;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t size_ = 0;
  };

  static std::shared_ptr<BlockCache> make() { return std::shared_ptr<BlockCache>(new BlockCache); }

  /// A block of `size` bytes; empty for 0.
  Block take(std::size_t size);

  /// Blocks kept for the next take().
  std::size_t kept() const;

 private:
  BlockCache() = default;

  // Size classes are powers of two from 64 bytes to kLargest.
  static constexpr std::size_t kSmallest = 64;
  static constexpr std::size_t kClasses = 8;
  static_assert(kSmallest << (kClasses - 1) == kLargest);
  // Of each class; 1 MiB in all. The node's loop frees in bursts of about as many as one round of it handles.
  static constexpr std::size_t kKeptPerClass = 64;
  static std::size_t class_of(std::size_t size) noexcept;

  mutable std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<std::byte[]>>, kClasses> kept_;
  ForkGuard fork_guard_;
};

}  // namespace stagewire
