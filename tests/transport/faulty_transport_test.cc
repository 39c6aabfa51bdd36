// The fault decorator does what it is told, so that tests which rely on it test what they mean to.
#include "faulty_transport.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "support.h"
#include "transport/local/local_transport.h"

namespace stagewire::testing_support {
namespace {

constexpr std::size_t kSize = 300'000;

class FaultyTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.size = kSize;
    options.touch_in_background = false;
    auto pool = Pool::create(options);
    ASSERT_TRUE(pool.ok());
    fill_pattern((*pool)->base(), kSize, 3);
    channel_.peer_id = channel_.self_id;
    ASSERT_TRUE(transport_.export_memory(ExportedMemory::of(1, *pool)).ok());
    auto link = transport_.connect(channel_, "");
    ASSERT_TRUE(link.ok());
    link_ = std::move(*link);
    expected_.assign((*pool)->base(), (*pool)->base() + kSize);
  }
  ReadId read() { return link_->read({1, {{1, 0, kSize}}, {{to_.data(), kSize}}}, fill(outcome_)); }
  std::size_t filled() const {
    return static_cast<std::size_t>(std::mismatch(to_.begin(), to_.end(), expected_.begin()).first -
                                    to_.begin());
  }
  std::shared_ptr<Once<bool>> abort(ReadId id) {
    auto settled = std::make_shared<Once<bool>>();
    link_->abort(id, [settled] { settled->set(true); });
    return settled;
  }

  CopyEngine engine_{1};
  TestChannel channel_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  FaultyTransport transport_{std::make_unique<LocalTransport>(engine_), plan_};
  std::unique_ptr<Link> link_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> to_ = std::vector<std::byte>(kSize);
  Outcome outcome_ = make_outcome();
};

TEST_F(FaultyTransportTest, WithoutFaultsReadsGoThrough) {
  read();
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_EQ(filled(), kSize);
}

TEST_F(FaultyTransportTest, DropsUntilAborted) {
  plan_->next_read({Fault::Kind::drop, 0, {}});
  const ReadId id = read();
  EXPECT_FALSE(outcome_->happened());
  EXPECT_TRUE(abort(id)->wait());
  EXPECT_EQ(kind_name(outcome_->wait()), "cancelled");
}

TEST_F(FaultyTransportTest, CloseEndsDroppedReads) {
  plan_->next_read({Fault::Kind::drop, 0, {}});
  read();
  Once<bool> closed;
  link_->close([&] { closed.set(true); });
  EXPECT_TRUE(closed.wait());
  EXPECT_EQ(kind_name(outcome_->wait()), "peer_lost");
}

TEST_F(FaultyTransportTest, FailsAndTruncates) {
  plan_->next_read({Fault::Kind::fail, 0, Error(ErrorKind::lease_lost, "planned")});
  read();
  EXPECT_EQ(kind_name(outcome_->wait()), "lease_lost");
  EXPECT_EQ(filled(), 0U);
  outcome_ = make_outcome();
  plan_->next_read({Fault::Kind::truncate, 1234, {}});
  read();
  EXPECT_EQ(kind_name(outcome_->wait()), "peer_lost");
  EXPECT_EQ(filled(), 1234U);
}

TEST_F(FaultyTransportTest, DelaysUntilReleased) {
  plan_->next_read({Fault::Kind::delay, 0, {}});
  read();
  EXPECT_FALSE(outcome_->happened());
  plan_->release_delayed();
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
}

TEST_F(FaultyTransportTest, FreezesBeforeDone) {
  plan_->freeze("before_done");
  const ReadId id = read();
  ASSERT_TRUE(plan_->wait_frozen("before_done", 1));
  EXPECT_FALSE(outcome_->happened());
  const auto settled = abort(id);
  EXPECT_FALSE(settled->happened());
  plan_->thaw("before_done");
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_TRUE(settled->wait());
}

TEST_F(FaultyTransportTest, FreezesBeforeSettle) {
  plan_->freeze("before_settle");
  plan_->next_read({Fault::Kind::drop, 0, {}});
  const auto settled = abort(read());
  EXPECT_EQ(kind_name(outcome_->wait()), "cancelled");
  EXPECT_FALSE(settled->happened());
  plan_->thaw("before_settle");
  EXPECT_TRUE(settled->wait());
}

}  // namespace
}  // namespace stagewire::testing_support
