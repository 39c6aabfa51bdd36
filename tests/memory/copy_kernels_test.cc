// The copy kernels, byte for byte: every alignment of both sides, every tail, and no byte beside the range.
#include "memory/copy_kernels.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace stagewire {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr std::size_t kGuard = 128;

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

class CopyKernelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernel_ = kernel_named(GetParam());
    if (kernel_.name != GetParam()) GTEST_SKIP() << "this CPU has no " << GetParam();
  }

  void check(std::size_t size, std::size_t from_shift, std::size_t to_shift) {
    const auto source = random_bytes(size + from_shift);
    std::vector<std::byte> target(size + to_shift + 2 * kGuard, kPoison);
    std::byte* const to = target.data() + kGuard + to_shift;
    kernel_.copy(to, source.data() + from_shift, size);
    copy_fence();
    const auto where = testing::Message() << size << " bytes, shifts " << from_shift << " and " << to_shift;
    ASSERT_TRUE(size == 0 || std::memcmp(to, source.data() + from_shift, size) == 0) << where;
    for (const std::byte* at = target.data(); at != to; ++at) ASSERT_EQ(*at, kPoison) << where;
    for (const std::byte* at = to + size; at != target.data() + target.size(); ++at)
      ASSERT_EQ(*at, kPoison) << where;
  }

  StreamingKernel kernel_{};
};

TEST_P(CopyKernelTest, CopiesEveryAlignmentOfTheDestination) {
  for (std::size_t to = 0; to < 64; ++to) {
    ASSERT_NO_FATAL_FAILURE(check(1000, 0, to));
    ASSERT_NO_FATAL_FAILURE(check(20'000, 3, to));
  }
}

TEST_P(CopyKernelTest, CopiesEveryAlignmentOfTheSource) {
  for (std::size_t from = 0; from < 64; ++from) ASSERT_NO_FATAL_FAILURE(check(5000, from, 0));
}

TEST_P(CopyKernelTest, CopiesEverySmallSize) {
  for (std::size_t size = 0; size <= 520; ++size) {
    ASSERT_NO_FATAL_FAILURE(check(size, 0, 0));
    ASSERT_NO_FATAL_FAILURE(check(size, 7, 13));
  }
}

TEST_P(CopyKernelTest, CopiesAroundTheSizesOfItsBlocks) {
  // 16 and 32 KiB are the blocks of four and eight pages.
  for (const std::size_t block : {4096UL, 16384UL, 32768UL, 49152UL, 65536UL, 1048576UL})
    for (const std::size_t size : {block - 129, block - 1, block, block + 1, block + 127, block + 4096})
      for (const std::size_t shift : {0UL, 1UL, 63UL})
        ASSERT_NO_FATAL_FAILURE(check(size, shift, 64 - shift));
}

INSTANTIATE_TEST_SUITE_P(Kernels, CopyKernelTest, testing::Values("memcpy", "avx2", "avx512"),
                         [](const auto& each) { return std::string(each.param); });

TEST(CopyKernels, AnUnknownNameIsThePlainOne) {
  EXPECT_EQ(kernel_named("no such kernel").name, plain_kernel().name);
  EXPECT_NE(streaming_kernel().copy, nullptr);
}

}  // namespace
}  // namespace stagewire
