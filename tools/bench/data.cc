// See data.h.
#include "bench/data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <utility>

namespace stagewire::tools {

namespace {
// Weyl's sequence with the 64-bit golden ratio: consecutive words differ in most bits, and it vectorizes.
constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t word_at(std::uint64_t seed, std::uint64_t index) noexcept {
  return (index + seed * 0x10001ULL) * kStep;
}
}  // namespace

void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size / 8; ++i) {
    const std::uint64_t word = word_at(seed, i);
    std::memcpy(data + i * 8, &word, 8);
  }
}

bool is_pattern(const void* data, std::size_t size, std::uint64_t seed, std::uint64_t from) {
  const auto* bytes = static_cast<const std::byte*>(data);
  std::uint64_t differences = 0;
  for (std::size_t i = 0; i < size / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * 8, 8);
    differences |= word ^ word_at(seed, from / 8 + i);
  }
  return differences == 0;
}

Result<Payload> make_payload(const std::byte* data, std::uint64_t size, std::uint64_t tensors) {
  if (tensors <= 1) {
    STAGEWIRE_ASSIGN(Tensor tensor, Tensor::over(DType::u8, {static_cast<std::int64_t>(size)}, data));
    return Payload::of(std::move(tensor));
  }
  const std::uint64_t share = size / tensors;
  if (share * tensors != size || share % 8 != 0) {
    return Error(ErrorKind::invalid_argument, std::to_string(size) + " bytes cannot be cut into " +
                                                  std::to_string(tensors) + " tensors of whole 8-byte words");
  }
  std::vector<std::pair<std::string, Tensor>> named;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(share / 2)};
    if (share % kKvTokenBytes == 0) shape = {4, static_cast<std::int64_t>(share / kKvTokenBytes), 128};
    STAGEWIRE_ASSIGN(Tensor tensor, Tensor::over(DType::bf16, std::move(shape), data + i * share));
    named.emplace_back("layer" + std::to_string(i / 2) + (i % 2 == 0 ? ".k" : ".v"), std::move(tensor));
  }
  return Payload::of(std::move(named));
}

Status check_payload(const Payload& payload, std::uint64_t size, std::uint64_t seed) {
  if (payload.tensor_bytes() != size) {
    return Error(ErrorKind::internal, "got " + std::to_string(payload.tensor_bytes()) + " bytes, expected " +
                                          std::to_string(size));
  }
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < payload.tensors().size(); ++i) {
    const Tensor& tensor = payload.tensors()[i];
    if (!is_pattern(tensor.data, tensor.bytes(), seed, at))
      return Error(ErrorKind::internal, "tensor " + std::to_string(i) + " does not hold what was published");
    at += tensor.bytes();
  }
  return {};
}

Result<Memory> Memory::make(std::size_t size) {
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) return Error::from_errno(errno, "mapping " + std::to_string(size) + " bytes");
  Memory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = size;
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MemcpyTeam::MemcpyTeam(unsigned threads)
    : threads_(std::max(1U, threads)), sums_(threads_), gate_(static_cast<std::ptrdiff_t>(threads_)) {
  for (unsigned i = 1; i < threads_; ++i) {
    workers_.emplace_back([this, i] {
      for (;;) {
        gate_.arrive_and_wait();
        if (stop_) return;
        work(i);
        gate_.arrive_and_wait();
      }
    });
  }
}

MemcpyTeam::~MemcpyTeam() {
  stop_ = true;
  gate_.arrive_and_wait();
  for (std::thread& worker : workers_) worker.join();
}

void MemcpyTeam::copy(std::byte* to, const std::byte* from, std::size_t size) {
  to_ = to;
  from_ = from;
  size_ = size;
  gate_.arrive_and_wait();
  work(0);
  gate_.arrive_and_wait();
}

void MemcpyTeam::read(const std::byte* from, std::size_t size) {
  copy(nullptr, from, size);
}

void MemcpyTeam::work(unsigned index) {
  const std::size_t share = size_ / threads_ / 64 * 64;
  const std::size_t start = share * index;
  const std::size_t length = index + 1 == threads_ ? size_ - start : share;
  if (to_ != nullptr) {
    std::memcpy(to_ + start, from_ + start, length);
    return;
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 8 <= length; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from_ + start + i, 8);
    sum += word;
  }
  // Kept where the compiler cannot know that nobody looks, so that the reads happen.
  sums_[index] += sum;
}

}  // namespace stagewire::tools
