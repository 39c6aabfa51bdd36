// The suite that every transport has to pass. A transport joins it by writing a TransportHarness and an
// INSTANTIATE_TEST_SUITE_P line, as at the end of conformance.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "harness.h"

namespace stagewire::testing_support {

struct ConformanceCase {
  std::string name;
  std::function<std::unique_ptr<TransportHarness>(std::uint64_t pool_size)> make;
};

class TransportConformance : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  static constexpr std::uint64_t kPoolSize = 64ULL << 20U;

  void SetUp() override { harness_ = GetParam().make(kPoolSize); }

  /// The destination of a read: `size` bytes between two canaries.
  class Destination {
   public:
    explicit Destination(std::size_t size);
    std::byte* data() noexcept { return bytes_.data() + kCanary; }
    std::size_t size() const noexcept { return bytes_.size() - 2 * kCanary; }
    /// Both canaries are untouched.
    bool intact() const;
    /// Overwrites everything; poisoned() then tells whether nobody wrote since.
    void poison();
    bool poisoned() const;

   private:
    static constexpr std::size_t kCanary = 4096;
    std::vector<std::byte> bytes_;
  };

  /// A read of [offset, offset + size) of the pool into `to`, as one range each.
  static ReadRequest request(std::uint64_t offset, Destination& to);
  bool same(std::uint64_t offset, Destination& to);

  std::unique_ptr<TransportHarness> harness_;
};

}  // namespace stagewire::testing_support
