// The network between the fake adapters of several processes refuses what a real one would, and reads from
// processes that are stopped but not from those that have ended. The tests of nodes in two processes rest on
// it.
#include "fake/fake_fabric.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "fake/fake_verbs.h"

namespace stagewire::testing_support {
namespace {

class Fabric : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FakeFabric::obstacle().empty()) GTEST_SKIP() << FakeFabric::obstacle();
    std::filesystem::create_directories(directory_);
    fabric_ = FakeFabric::join(directory_ + "/fabric");
    std::fill(memory_.begin(), memory_.end(), std::byte{0x17});
  }
  ~Fabric() override {
    if (child_ > 0) end_child();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  /// What this process, or a child with the same memory, offers to a reader with queue pair 7.
  FabricQueuePair lender() {
    return {.number = number_,
            .peer = 7,
            .rq_psn = 99,
            .state = IBV_QPS_RTR,
            .remote_read = true,
            .port_active = true,
            .lid = 3,
            .gids = {ipv4_gid(10, 9, 0, 1)},
            .pd = &number_};
  }
  FabricRegistration registration() const {
    return {.key = key_, .pd = &number_, .address = memory_.data(), .length = memory_.size()};
  }
  FabricRead read() const {
    return {.from = 7,
            .to = number_,
            .sq_psn = 99,
            .global = true,
            .gid = ipv4_gid(10, 9, 0, 1),
            .lid = 0,
            .key = key_,
            .address = reinterpret_cast<std::uintptr_t>(memory_.data()),
            .length = memory_.size()};
  }
  void lend() {
    number_ = fabric_->next_number();
    key_ = fabric_->next_number();
    fabric_->set(lender());
    fabric_->add(registration());
  }
  /// The child lends what it has written; this process's memory has other bytes at the same place.
  void lend_in_child() {
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(::pipe(ends.data()), 0);
    number_ = fabric_->next_number();
    key_ = fabric_->next_number();
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto own = FakeFabric::join(directory_ + "/fabric");
      std::fill(memory_.begin(), memory_.end(), std::byte{0x42});
      own->set(lender());
      own->add(registration());
      static_cast<void>(::write(ends[1], "r", 1));
      for (;;) ::pause();
    }
    char ready = 0;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void end_child() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  ibv_wc_status fetch(const FabricRead& what) { return fabric_->fetch(what, 16, bytes_); }

  const std::string directory_ = "/tmp/stagewire-test-" + std::to_string(::getpid());
  std::shared_ptr<FakeFabric> fabric_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  std::array<std::byte, 64> bytes_{};
  std::uint32_t number_ = 0;
  std::uint32_t key_ = 0;
  pid_t child_ = -1;
};

TEST_F(Fabric, ReadsAndKnowsWhatItMayNot) {
  lend();
  ASSERT_EQ(fetch(read()), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes_.front(), std::byte{0x17});
  EXPECT_EQ(bytes_.back(), std::byte{0x17});

  const auto after = [&](auto change) {
    FabricRead changed = read();
    change(changed);
    return fetch(changed);
  };
  EXPECT_EQ(after([](FabricRead& each) { each.to = 0; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.to; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.from; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.sq_psn; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { each.gid = ipv4_gid(10, 9, 0, 2); }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { each.global = false; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricRead& each) { each.global = false, each.lid = 3; }), IBV_WC_SUCCESS);
  EXPECT_EQ(after([](FabricRead& each) { each.key = 0; }), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.key; }), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(after([](FabricRead& each) { --each.address; }), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.address; }), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(after([](FabricRead& each) { ++each.length; }), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Fabric, WhatTheOwnerChangesCounts) {
  lend();
  const auto after = [&](auto change) {
    FabricQueuePair changed = lender();
    change(changed);
    fabric_->set(changed);
    return fetch(read());
  };
  EXPECT_EQ(after([](FabricQueuePair& each) { each.state = IBV_QPS_INIT; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.state = IBV_QPS_RTS; }), IBV_WC_SUCCESS);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.state = IBV_QPS_ERR; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.port_active = false; }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.gids.clear(); }), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.remote_read = false; }), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(after([](FabricQueuePair& each) { each.pd = nullptr; }), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(after([](FabricQueuePair& /*each*/) {}), IBV_WC_SUCCESS);
  fabric_->remove_registration(key_);
  EXPECT_EQ(fetch(read()), IBV_WC_REM_ACCESS_ERR);
  fabric_->add(registration());
  EXPECT_EQ(fetch(read()), IBV_WC_SUCCESS);
  fabric_->remove_queue_pair(number_);
  EXPECT_EQ(fetch(read()), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Fabric, AStoppedProcessIsReadAndADeadOneIsNot) {
  lend_in_child();
  ASSERT_EQ(fetch(read()), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes_.front(), std::byte{0x42});
  ::kill(child_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, WUNTRACED), child_);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(fetch(read()), IBV_WC_SUCCESS);
  // Its numbers are there still; nobody answers, and nothing waits for it.
  end_child();
  EXPECT_EQ(fetch(read()), IBV_WC_RETRY_EXC_ERR);
  lend();
  EXPECT_EQ(fetch(read()), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes_.front(), std::byte{0x17});
}

TEST_F(Fabric, ADomainOfAnotherProcessIsAnotherDomain) {
  lend_in_child();
  fabric_->remove_queue_pair(number_);
  fabric_->set(lender());  // of this process now, with a domain of the same address
  EXPECT_EQ(fetch(read()), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace stagewire::testing_support
