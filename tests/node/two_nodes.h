// Two nodes of this process over fake adapters that share a network, and TCP between them.
#pragma once

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "fake/fake_verbs.h"
#include "node/core.h"

namespace stagewire::testing_support {

class TwoNodes : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 3'000'000;

  std::unique_ptr<NodeCore> make(const std::string& device, std::vector<std::string> routes,
                                 const VerbsTransport::OpenApi& open) {
    NodeConfig config;
    config.name = device;
    config.insecure = true;
    config.listen = {"127.0.0.1:0"};
    config.publish_pool_size = config.receive_pool_size = 32U << 20U;
    config.touch_pools = false;
    config.log_level = "off";
    config.routes = std::move(routes);
    config.rdma_device = device;
    auto made = NodeCore::create(config, {.open_verbs = open, .reached = nullptr});
    return std::move(made).value();
  }
  void start(const std::vector<std::string>& routes) {
    const auto open = [this]() -> Result<std::shared_ptr<VerbsApi>> {
      return std::shared_ptr<VerbsApi>(fake_);
    };
    sender_ = make("fake0", routes, open);
    reader_ = make("fake1", routes, open);
    fill();
  }
  void fill() {
    bytes_.resize(kSize);
    for (std::size_t i = 0; i < kSize; ++i) bytes_[i] = static_cast<std::byte>(i * 31 + (i >> 8U));
  }
  ~TwoNodes() override {
    fake_->release();
    reader_.reset();
    sender_.reset();
    EXPECT_EQ(fake_->leaks(), "");
  }
  Ticket put(const std::string& key) {
    Tensor tensor;
    tensor.dtype = DType::u8;
    tensor.shape = {static_cast<std::int64_t>(kSize)};
    tensor.data = bytes_.data();
    return sender_
        ->put(Key{.name_space = {}, .from_stage = "a", .to_stage = "b", .key = key}, Payload::of(tensor), {})
        .value();
  }
  Result<Got> get(const Ticket& ticket, std::chrono::seconds within = std::chrono::seconds(30)) {
    return reader_->get(Source::of(ticket), GetOptions(Deadline::in(within)));
  }
  bool whole(const Got& got) {
    const Tensor* tensor = got.payload.find("");
    return tensor != nullptr && got.size == kSize && std::memcmp(tensor->data, bytes_.data(), kSize) == 0;
  }

  std::shared_ptr<FakeVerbs> fake_ =
      std::make_shared<FakeVerbs>(std::vector<FakeDevice>{fake_roce("fake0", 1), fake_roce("fake1", 2)});
  std::vector<std::byte> bytes_;
  std::unique_ptr<NodeCore> sender_;
  std::unique_ptr<NodeCore> reader_;
};

}  // namespace stagewire::testing_support
