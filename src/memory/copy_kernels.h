// The inner loops of large copies. Pure functions, any thread, nothing owned.
#pragma once

#include <cstddef>
#include <string_view>

namespace stagewire {

/// A copy that leaves its stores unordered until copy_fence(): ranges must not overlap; any alignment and
/// size.
using CopyKernel = void (*)(std::byte* to, const std::byte* from, std::size_t size);

/// A kernel that bypasses the caches with its stores, and the name of what it was made from.
struct StreamingKernel {
  CopyKernel copy;
  std::string_view name;  ///< "avx512", "avx2" or "memcpy"
};

/// std::memcpy as a kernel.
StreamingKernel plain_kernel() noexcept;
/// The kernel of this name if the CPU has what it needs, otherwise the plain one. For benchmarks and tests.
StreamingKernel kernel_named(std::string_view name) noexcept;
/// The best kernel for large copies on this CPU. The plain one under a sanitizer, whose checks do not see
/// non-temporal stores.
StreamingKernel streaming_kernel() noexcept;

/// Makes all stores of the kernels by this thread visible before any later store. Call it before telling
/// another thread that bytes are in place.
void copy_fence() noexcept;

}  // namespace stagewire
