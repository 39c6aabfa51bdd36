// The allocator that the older connector uses, as a yardstick: a list of free ranges sorted by address, first
// fit by linear search, 4096-byte granularity, neighbours joined. Single-threaded; owned by the benchmark.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace stagewire::bench {

class FirstFit {
 public:
  static constexpr std::uint64_t kGranularity = 4096;

  struct Allocation {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  explicit FirstFit(std::uint64_t size) : size_(size), free_{{0, size}} {}

  std::optional<Allocation> allocate(std::uint64_t size) {
    size = std::max<std::uint64_t>((size + kGranularity - 1) / kGranularity, 1) * kGranularity;
    const auto fit =
        std::find_if(free_.begin(), free_.end(), [&](const Allocation& f) { return f.size >= size; });
    if (fit == free_.end()) return std::nullopt;
    const Allocation taken{fit->offset, size};
    fit->offset += size;
    fit->size -= size;
    if (fit->size == 0) free_.erase(fit);
    used_ += size;
    return taken;
  }

  void release(const Allocation& a) {
    used_ -= a.size;
    auto at = std::lower_bound(free_.begin(), free_.end(), a.offset,
                               [](const Allocation& f, std::uint64_t offset) { return f.offset < offset; });
    at = free_.insert(at, a);
    if (const auto after = std::next(at); after != free_.end() && at->offset + at->size == after->offset) {
      at->size += after->size;
      at = std::prev(free_.erase(after));
    }
    if (at != free_.begin() && std::prev(at)->offset + std::prev(at)->size == at->offset) {
      std::prev(at)->size += at->size;
      free_.erase(at);
    }
  }

  std::uint64_t size() const { return size_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t largest_free() const {
    std::uint64_t largest = 0;
    for (const Allocation& f : free_) largest = std::max(largest, f.size);
    return largest;
  }

 private:
  std::uint64_t size_;
  std::uint64_t used_ = 0;
  std::vector<Allocation> free_;
};

}  // namespace stagewire::bench
