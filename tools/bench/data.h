// The bytes that the benches move: buffers, a pattern that tells every word's place, payloads over it, and
// the plain copies that stagewire is compared with. Owned by whoever makes them; functions run on any thread.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <stagewire/base/result.h>
#include <stagewire/node/got.h>
#include <stagewire/payload/payload.h>

namespace stagewire::tools {

/// The KV cache of the figures: 28 layers × K and V × 4 heads × 128 × 3,400 tokens of bf16, 195 MB.
inline constexpr std::uint64_t kKvTensors = 56;
inline constexpr std::uint64_t kKvTokenBytes = 4ULL * 128 * 2;  ///< of one token in one tensor
inline constexpr std::uint64_t kKvBytes = kKvTensors * 3400 * kKvTokenBytes;

/// Writes the pattern of `seed` over `size` bytes (a multiple of 8).
void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed);
/// Whether `size` bytes are the pattern of `seed`, from its word at byte `from` on.
bool is_pattern(const void* data, std::size_t size, std::uint64_t seed, std::uint64_t from = 0);

/// One flat tensor, or a dict of `tensors` equal ones, over contiguous bytes; of heads, tokens and
/// head size where the size allows it. Errors: invalid_argument.
Result<Payload> make_payload(const std::byte* data, std::uint64_t size, std::uint64_t tensors);
/// Whether what was got is the pattern of `seed`, tensor after tensor. Errors: internal, naming the tensor.
Status check_payload(const Payload& payload, std::uint64_t size, std::uint64_t seed);

/// Anonymous memory of the process's own, faulted in.
class Memory {
 public:
  /// Errors: io.
  static Result<Memory> make(std::size_t size);
  Memory() = default;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The baseline of copies: one call of memcpy per thread, the bytes split evenly. The caller is one of the
/// threads; the others wait between copies.
class MemcpyTeam {
 public:
  explicit MemcpyTeam(unsigned threads);
  ~MemcpyTeam();
  MemcpyTeam(const MemcpyTeam&) = delete;
  MemcpyTeam& operator=(const MemcpyTeam&) = delete;
  unsigned threads() const noexcept { return threads_; }
  void copy(std::byte* to, const std::byte* from, std::size_t size);
  /// Reads every byte with the same threads (sums words); for the first read of a view.
  void read(const std::byte* from, std::size_t size);

 private:
  void work(unsigned index);

  unsigned threads_;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t size_ = 0;
  bool stop_ = false;  // published, as the members above, by the barrier
  std::vector<std::uint64_t> sums_;
  std::barrier<> gate_;
  std::vector<std::thread> workers_;
};

}  // namespace stagewire::tools
