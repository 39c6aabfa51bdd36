// Nodes that read from each other over RDMA: two nodes of this process over fake adapters that share a
// network. What a read that fails over them comes to, and what a node tells about its choice.
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "node/two_nodes.h"
#include "transport/verbs/verbs_real.h"

namespace stagewire::testing_support {
namespace {

using VerbsRoute = TwoNodes;

TEST_F(VerbsRoute, GetsOverRdma) {
  start({"verbs"});
  for (int i = 0; i < 5; ++i) {
    const auto got = get(put("k" + std::to_string(i)));
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_EQ(got->transport, "verbs");
    EXPECT_TRUE(whole(*got));
    EXPECT_EQ(got->placement_note, "");
  }
}

// The same over a real adapter, where one is named.
class VerbsDeviceRoute : public VerbsRoute, public ::testing::WithParamInterface<std::string> {};

TEST_P(VerbsDeviceRoute, GetsOverRdma) {
  const auto open = [] { return open_real_verbs(); };
  sender_ = make(GetParam(), {"verbs"}, open);
  reader_ = make(GetParam(), {"verbs"}, open);
  fill();
  for (int i = 0; i < 3; ++i) {
    const auto got = get(put("k" + std::to_string(i)), std::chrono::seconds(60));
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_EQ(got->transport, "verbs");
    EXPECT_TRUE(whole(*got));
  }
}

std::vector<std::string> named_devices() {
  const char* device = std::getenv("STAGEWIRE_TEST_RDMA_DEVICE");
  return device == nullptr ? std::vector<std::string>() : std::vector<std::string>{device};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VerbsDeviceRoute);
INSTANTIATE_TEST_SUITE_P(Device, VerbsDeviceRoute, ::testing::ValuesIn(named_devices()));

TEST_F(VerbsRoute, IsPreferredToTcp) {
  start({"tcp", "verbs"});
  EXPECT_EQ(get(put("k"))->transport, "tcp");  // as configured, best first
  reader_.reset();
  sender_.reset();
  start({"verbs", "tcp"});
  EXPECT_EQ(get(put("k"))->transport, "verbs");
}

TEST_F(VerbsRoute, AReadThatFailsIsMadeOverTcpUnderTheSameLeaseAndSaysSo) {
  start({"verbs", "tcp"});
  ASSERT_EQ(get(put("first"))->transport, "verbs");
  fake_->fail_next(IBV_WC_RETRY_EXC_ERR);
  const auto got = get(put("second"));
  ASSERT_TRUE(got.ok()) << got.error();
  EXPECT_EQ(got->transport, "tcp");
  EXPECT_TRUE(whole(*got));
  EXPECT_NE(got->placement_note.find("read over tcp after verbs had failed"), std::string::npos)
      << got->placement_note;
  EXPECT_NE(got->placement_note.find("retry count exceeded"), std::string::npos);
  EXPECT_NE(reader_->metrics_text().find("stagewire_read_fallbacks_total{from=\"verbs\",to=\"tcp\"} 1"),
            std::string::npos);
  // The next one does not try what is known to be broken.
  const auto next = get(put("third"));
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->transport == "tcp" || next->placement_note.empty());
}

TEST_F(VerbsRoute, WithoutAnotherRouteTheFailureIsTheOutcome) {
  start({"verbs"});
  ASSERT_TRUE(get(put("first")).ok());
  fake_->fail_next(IBV_WC_REM_ACCESS_ERR);
  const auto got = get(put("second"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::lease_lost);
  EXPECT_EQ(got.error().transport(), "verbs");
  EXPECT_TRUE(get(put("third")).ok());
}

// The connection is gone with it, and with the connection the route: what the caller is told is still why.
TEST_F(VerbsRoute, ALostPeerIsTheOutcomeThoughNoRouteIsLeft) {
  start({"verbs"});
  ASSERT_TRUE(get(put("first")).ok());
  for (int i = 0; i < 2; ++i) fake_->fail_next(IBV_WC_RETRY_EXC_ERR);  // of each queue pair
  const auto got = get(put("second"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::peer_lost) << got.error();
  EXPECT_EQ(got.error().transport(), "verbs");
}

TEST_F(VerbsRoute, ADeadlineInTheReadLeavesNothingBehind) {
  start({"verbs"});
  ASSERT_TRUE(get(put("first")).ok());
  fake_->hold();
  const auto got = get(put("second"), std::chrono::seconds(1));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::deadline_exceeded);
  EXPECT_EQ(reader_->stats().receive_pool.used, 0U);
  EXPECT_EQ(reader_->stats().quarantined, 0U);
  fake_->release();
  const auto again = get(put("third"));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_TRUE(whole(*again));
}

TEST_F(VerbsRoute, AReadThatCannotBeFencedKeepsItsDestinationUntilItIsSafe) {
  start({"verbs"});
  ASSERT_TRUE(get(put("first")).ok());
  fake_->hold();
  fake_->shut_modify(IBV_QPS_ERR);  // the driver hangs where the fence needs it
  const auto got = get(put("second"), std::chrono::seconds(1));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::destination_held) << got.error();
  ASSERT_NE(got.error().cause(), nullptr);
  EXPECT_EQ(got.error().cause()->kind(), ErrorKind::deadline_exceeded);
  EXPECT_EQ(reader_->stats().quarantined, 1U);
  EXPECT_GE(reader_->stats().receive_pool.used, kSize) << "somebody else could be given this memory";
  fake_->open_gates();
  fake_->release();
  const Deadline guard = Deadline::in(std::chrono::minutes(1));
  while (reader_->stats().quarantined != 0 && !guard.passed()) std::this_thread::yield();
  EXPECT_EQ(reader_->stats().quarantined, 0U);
  EXPECT_EQ(reader_->stats().receive_pool.used, 0U);
  const auto again = get(put("third"));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_TRUE(whole(*again));
}

TEST_F(VerbsRoute, ExplainShowsTheDeviceAndWhatWasRejected) {
  start({"verbs", "tcp"});
  ASSERT_TRUE(get(put("k")).ok());
  const std::string text = reader_->explain();
  EXPECT_NE(text.find("verbs: viable, fake1 port 1, RoCE v2, GID 1 (10.9.0.2)"), std::string::npos) << text;
  EXPECT_NE(text.find("- fake0: rdma_device names fake1"), std::string::npos) << text;
  EXPECT_NE(text.find("10.9.0.2 → 10.9.0.1, MTU 4096, 2 queue pairs"), std::string::npos) << text;
}

TEST_F(VerbsRoute, ADeviceThatDoesNotExistIsAnError) {
  NodeConfig config;
  config.routes = {"verbs"};
  config.publish_pool_size = config.receive_pool_size = 1U << 20U;
  config.rdma_device = "mlx5_3";
  const auto open = [this]() -> Result<std::shared_ptr<VerbsApi>> {
    return std::shared_ptr<VerbsApi>(fake_);
  };
  const auto made = NodeCore::create(config, {.open_verbs = open, .reached = nullptr});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind(), ErrorKind::config);
  EXPECT_NE(made.error().message().find("fake0, fake1"), std::string::npos);
}

}  // namespace
}  // namespace stagewire::testing_support
