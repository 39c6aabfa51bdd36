// What the tests of verbs links share: a pair of links over fake adapters, and destinations whose every byte
// is watched.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "verbs_harness.h"

namespace stagewire::testing_support {

class VerbsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 8ULL << 20U;

  VerbsTest() {
    // Quick where a test waits for it, out of the way where it does not.
    setup_.reader.abort_fence = std::chrono::milliseconds(1);
    setup_.reader.drain_timeout = std::chrono::minutes(10);
    setup_.reader.retry_first = setup_.writer.retry_first = std::chrono::milliseconds(1);
    setup_.reader.retry_last = setup_.writer.retry_last = std::chrono::milliseconds(20);
    setup_.reader.chunk_size = 64 << 10;
  }
  ~VerbsTest() override {
    fake_->open_gates();
    fake_->release();
    fake_->release_completions();
    fake_->release_flushes();
    harness_.reset();
    EXPECT_EQ(fake_->leaks(), "");
  }

  /// The links, connected, with a receive pool that is registered.
  void start() {
    make();
    harness_->wait_connected();
    PoolOptions options;
    options.name = "destination";
    options.use = PoolUse::receive;
    options.size = kSize;
    options.touch_in_background = false;
    pool_ = Pool::create(options).value();
    run_on(harness_->loop(), [&] { harness_->reader_transport().add_receive_pool(pool_); });
    // Registered in order on the same thread as a destination of its own.
    harness_->wait_connected();
    run_on(harness_->loop(), [] {});
  }
  void make() { harness_ = std::make_unique<VerbsHarness>(kSize, fake_, setup_); }

  /// A read of the first `size` bytes into the receive pool at `offset`.
  ReadRequest request(std::uint64_t size, std::uint64_t offset = 0) {
    return {kLease, {{kMemory, 0, size}}, {{pool_->base() + offset, size}}};
  }
  bool same(std::uint64_t size, std::uint64_t offset = 0) {
    return std::equal(pool_->base() + offset, pool_->base() + offset + size, harness_->pool().base());
  }
  void poison() { std::fill(pool_->base(), pool_->base() + pool_->size(), std::byte{0x5E}); }
  bool poisoned() {
    return std::all_of(pool_->base(), pool_->base() + pool_->size(),
                       [](std::byte b) { return b == std::byte{0x5E}; });
  }
  std::uint64_t metric(const std::string& name) { return harness_->metrics().counter(name, "").value(); }
  /// Reads into memory of the test's own.
  Status read_own(std::uint64_t size) {
    std::vector<std::byte> to(size);
    return harness_->read_now({kLease, {{kMemory, 0, size}}, {{to.data(), to.size()}}});
  }

  std::shared_ptr<FakeVerbs> fake_ = std::make_shared<FakeVerbs>(two_fake_devices());
  VerbsSetup setup_ = fake_setup();
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<VerbsHarness> harness_;
};

}  // namespace stagewire::testing_support
