// What goes wrong on the way, and what readers and operators are told: failed completions, adapters that go
// away, registrations and connections that fail.
#include <cerrno>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "verbs_fixture.h"

namespace stagewire::testing_support {
namespace {

class VerbsFailure : public VerbsTest {
 protected:
  void SetUp() override { setup_.reader.queue_pairs = 1; }
};

TEST_F(VerbsFailure, ARefusedReadFailsAloneAndSaysWhy) {
  start();
  const std::vector<std::pair<ibv_wc_status, std::string>> refusals{{IBV_WC_REM_ACCESS_ERR, "lease_lost"},
                                                                    {IBV_WC_REM_INV_REQ_ERR, "protocol"},
                                                                    {IBV_WC_LOC_PROT_ERR, "internal"},
                                                                    {IBV_WC_LOC_LEN_ERR, "internal"}};
  for (const auto& [status, kind] : refusals) {
    fake_->hold();
    const Outcome failing = make_outcome();
    const Outcome other = make_outcome();
    harness_->read(request(64 << 10), failing);
    harness_->read(request(1 << 20, 1 << 20), other);
    ASSERT_TRUE(fake_->wait_for_requests(17));
    fake_->fail_next(status);
    fake_->release();
    const Status result = failing->wait();
    EXPECT_EQ(kind_name(result), kind) << status;
    EXPECT_NE(result.error().to_string().find("vendor error 119"), std::string::npos) << result.error();
    EXPECT_EQ(result.error().transport(), "verbs");
    EXPECT_EQ(kind_name(other->wait()), "ok") << status;
    EXPECT_TRUE(same(1 << 20, 1 << 20));
    EXPECT_TRUE(harness_->viability().viable);
  }
}

TEST_F(VerbsFailure, ALostConnectionEndsItsReadsAndIsMadeAnew) {
  start();
  const std::set<ibv_wc_status> local{IBV_WC_LOC_QP_OP_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR};
  for (const ibv_wc_status status :
       {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RESP_TIMEOUT_ERR,
        IBV_WC_LOC_QP_OP_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR}) {
    fake_->hold();
    const Outcome first = make_outcome();
    const Outcome second = make_outcome();
    harness_->read(request(64 << 10), first);
    harness_->read(request(64 << 10, 1 << 20), second);
    ASSERT_TRUE(fake_->wait_for_requests(2));
    fake_->fail_next(status);
    fake_->release();
    const std::string expected = local.contains(status) ? "io" : "peer_lost";
    EXPECT_EQ(kind_name(first->wait()), expected) << status;
    EXPECT_EQ(kind_name(second->wait()), expected) << status;
    ASSERT_TRUE(harness_->wait_viable(true));
    EXPECT_EQ(kind_name(harness_->read_now(request(64 << 10))), "ok");
  }
}

TEST_F(VerbsFailure, ALostConnectionIsNotViableForAWhileAndSaysWhenItIsTriedAgain) {
  setup_.reader.retry_first = setup_.reader.retry_last = std::chrono::minutes(10);
  start();
  fake_->fail_next(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "peer_lost");
  ASSERT_TRUE(harness_->wait_viable(false));
  const std::string reason = harness_->viability().reason;
  EXPECT_EQ(reason.find("not viable, because"), 0U) << reason;
  EXPECT_NE(reason.find("retry count exceeded"), std::string::npos) << reason;
  EXPECT_NE(reason.find("trying again in"), std::string::npos) << reason;
  EXPECT_GT(harness_->reader_channel().changes, 0);
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "not_viable");
}

TEST_F(VerbsFailure, AFlushedRequestIsPostedAgain) {
  start();
  fake_->fail_next(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
  EXPECT_TRUE(same(1 << 20));
  EXPECT_GT(metric("stagewire_verbs_requests_repeated_total"), 0U);
}

TEST_F(VerbsFailure, AReadThatIsFlushedAgainAndAgainEnds) {
  start();
  for (int i = 0; i < 9; ++i) fake_->fail_next(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "peer_lost");
}

TEST_F(VerbsFailure, WithdrawnMemoryCannotBeReadAnyMore) {
  start();
  run_on(harness_->loop(), [&] { harness_->writer_transport().forget_memory(kMemory, nullptr); });
  // The registration ends on the writer's helper, after which the adapter refuses.
  Status status;
  const Deadline deadline = Deadline::in(kHangGuard);
  while (status.ok() && !deadline.passed()) status = harness_->read_now(request(100));
  EXPECT_EQ(kind_name(status), "lease_lost");
  EXPECT_NE(status.error().message().find("withdrawn"), std::string::npos) << status.error();
}

TEST_F(VerbsFailure, CompletionErrorsAreCountedByStatus) {
  start();
  fake_->fail_next(IBV_WC_REM_ACCESS_ERR);
  static_cast<void>(harness_->read_now(request(100)));
  EXPECT_EQ(harness_->metrics()
                .counter("stagewire_verbs_completion_errors_total", "", {{"status", "remote_access"}})
                .value(),
            1U);
}

// --- The adapter.

TEST_F(VerbsFailure, APortThatIsDownIsNotUsedUntilItIsUp) {
  start();
  fake_->set_port_state("fake0", IBV_PORT_DOWN);
  ASSERT_TRUE(harness_->wait_viable(false));
  EXPECT_NE(harness_->viability().reason.find("port 1 of fake0 is down"), std::string::npos);
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "not_viable");
  fake_->set_port_state("fake0", IBV_PORT_ACTIVE);
  ASSERT_TRUE(harness_->wait_viable(true));
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "ok");
}

TEST_F(VerbsFailure, ALostAdapterEndsReadsAndIsOpenedAgain) {
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(64));
  fake_->remove_device("fake0");
  EXPECT_EQ(kind_name(outcome->wait()), "peer_lost");
  ASSERT_TRUE(harness_->wait_viable(false));
  EXPECT_NE(harness_->viability().reason.find("has failed or was removed"), std::string::npos);
  fake_->release();
  fake_->restore_device("fake0");
  ASSERT_TRUE(harness_->wait_viable(true));
  EXPECT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
  EXPECT_TRUE(same(1 << 20));
}

TEST_F(VerbsFailure, AnAdapterWhoseEventsHangUpIsOpenedAgain) {
  start();
  fake_->hang_up_events("fake0");
  const Deadline deadline = Deadline::in(kHangGuard);
  const auto connections = [&] { return metric("stagewire_verbs_connections_total"); };
  const std::uint64_t before = connections();
  while (connections() == before && !deadline.passed()) std::this_thread::yield();
  EXPECT_GT(connections(), before);
  ASSERT_TRUE(harness_->wait_viable(true));
  EXPECT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
}

TEST_F(VerbsFailure, TheSendersAdapterMayComeBackWithOtherKeys) {
  start();
  fake_->remove_device("fake1");
  // The reader learns of it by a read that nobody answers.
  Status status;
  const Deadline deadline = Deadline::in(kHangGuard);
  while (status.ok() && !deadline.passed()) status = harness_->read_now(request(100));
  EXPECT_FALSE(status.ok());
  fake_->restore_device("fake1");
  while (!status.ok() && !deadline.passed()) status = harness_->read_now(request(1 << 20));
  EXPECT_EQ(kind_name(status), "ok");
  EXPECT_TRUE(same(1 << 20));
}

TEST_F(VerbsFailure, AnAddressThatChangesIsFollowed) {
  start();
  fake_->set_gid("fake0", 1, ipv4_gid(10, 9, 0, 77));
  const Deadline deadline = Deadline::in(kHangGuard);
  const auto has_new = [&] { return harness_->viability().reason.find("10.9.0.77") != std::string::npos; };
  while (!has_new() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(has_new());
  EXPECT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
}

TEST_F(VerbsFailure, APortThatComesUpAfterTheStartIsUsedFromThenOn) {
  for (const std::string late : {"fake0", "fake1"}) {
    fake_->set_port_state(late, IBV_PORT_DOWN);
    make();
    EXPECT_FALSE(harness_->viability().viable) << late;
    EXPECT_EQ(kind_name(read_own(100)), "not_viable") << late;
    fake_->set_port_state(late, IBV_PORT_ACTIVE);
    ASSERT_TRUE(harness_->wait_viable(true)) << late;
    EXPECT_EQ(kind_name(read_own(1 << 20)), "ok") << late;
    harness_.reset();
  }
}

TEST_F(VerbsFailure, ATransportWhosePortIsDownSaysThatItLooksAgain) {
  fake_->set_port_state("fake0", IBV_PORT_DOWN);
  make();
  Viability viability;
  std::string table;
  run_on(harness_->loop(), [&] {
    viability = harness_->reader_transport().viability();
    table = harness_->reader_transport().explain();
  });
  EXPECT_TRUE(viability.viable);
  EXPECT_EQ(viability.reason.find("but not at the moment, because "), 0U) << viability.reason;
  EXPECT_NE(viability.reason.find("down"), std::string::npos) << viability.reason;
  EXPECT_NE(table.find("fake0 port 1"), std::string::npos) << table;
}

// A sender whose adapter was replaced says so: the next read does not have to fail first.
TEST_F(VerbsFailure, AReaderLearnsThatTheSendersAdapterWasReplaced) {
  start();
  const std::uint64_t before = metric("stagewire_verbs_connections_total");
  fake_->raise_event("fake1", IBV_EVENT_DEVICE_FATAL);
  const Deadline deadline = Deadline::in(kHangGuard);
  while (metric("stagewire_verbs_connections_total") == before && !deadline.passed())
    std::this_thread::yield();
  ASSERT_TRUE(harness_->wait_viable(true));
  EXPECT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
  EXPECT_TRUE(same(1 << 20));
}

// --- Memory.

TEST_F(VerbsFailure, ASenderThatCannotRegisterSaysSo) {
  setup_.writer.retry_last = setup_.reader.retry_first = std::chrono::minutes(10);
  fake_->fail_registrations(ENOMEM, 1);
  make();
  ASSERT_TRUE(harness_->wait_viable(false));
  const std::string reason = harness_->viability().reason;
  EXPECT_NE(reason.find("no key for its memory 7"), std::string::npos) << reason;
  EXPECT_NE(reason.find("8 MiB"), std::string::npos) << reason;
  EXPECT_EQ(kind_name(read_own(10)), "io");
}

TEST_F(VerbsFailure, WhatCouldNotBeRegisteredIsTriedAgain) {
  fake_->fail_registrations(ENOMEM, 3);
  make();
  ASSERT_TRUE(harness_->wait_viable(false));
  ASSERT_TRUE(harness_->wait_viable(true));
  EXPECT_EQ(kind_name(read_own(1 << 20)), "ok");
}

TEST_F(VerbsFailure, ADestinationThatCannotBeRegisteredIsAnError) {
  start();
  fake_->fail_registrations(EPERM, 1);
  const Status status = read_own(100'000);
  EXPECT_EQ(kind_name(status), "io");
  EXPECT_NE(status.error().message().find("IPC_LOCK"), std::string::npos) << status.error();
  EXPECT_EQ(kind_name(read_own(100'000)), "ok");
}

// --- Connections.

TEST_F(VerbsFailure, AConnectionThatFailsIsTriedAgain) {
  fake_->fail_queue_pairs(ENOMEM, 3);
  make();
  ASSERT_TRUE(harness_->wait_viable(true));
  const Deadline deadline = Deadline::in(kHangGuard);
  Status status = read_own(10);
  while (!status.ok() && !deadline.passed()) status = read_own(10);
  EXPECT_EQ(kind_name(status), "ok");
}

TEST_F(VerbsFailure, ReadsThatWaitEndWhenTheConnectionFails) {
  setup_.reader.retry_first = setup_.reader.retry_last = std::chrono::minutes(10);
  fake_->shut_modify(IBV_QPS_RTR);
  make();
  ASSERT_TRUE(fake_->wait_at_gate());
  std::byte byte{};
  const Outcome outcome = make_outcome();
  harness_->read({kLease, {{kMemory, 0, 1}}, {{&byte, 1}}}, outcome);
  fake_->fail_modify(IBV_QPS_RTR, ETIMEDOUT);
  fake_->open_gates();
  const Status status = outcome->wait();
  EXPECT_EQ(kind_name(status), "io");
  EXPECT_NE(status.error().message().find("GID could not be resolved"), std::string::npos) << status.error();
  EXPECT_FALSE(harness_->viability().viable);
}

TEST_F(VerbsFailure, APeerThatDoesNotAnswerIsGivenUp) {
  setup_.attach = false;
  setup_.reader.connect_timeout = std::chrono::milliseconds(10);
  make();
  harness_->connect_channels(false);
  harness_->attach();
  ASSERT_TRUE(harness_->wait_viable(false));
  harness_->connect_channels(true);
  const Deadline deadline = Deadline::in(kHangGuard);
  Status status = read_own(10);
  while (!status.ok() && !deadline.passed()) status = read_own(10);
  EXPECT_EQ(kind_name(status), "ok");
}

TEST_F(VerbsFailure, QueuePairsAreBoundedOnBothSides) {
  setup_.reader.retry_first = setup_.reader.retry_last = std::chrono::minutes(10);
  setup_.reader.queue_pairs = 4;
  setup_.writer.max_queue_pairs = 3;
  make();
  ASSERT_TRUE(harness_->wait_viable(false));
  EXPECT_NE(harness_->viability().reason.find("rdma_max_queue_pairs is 3"), std::string::npos);
  harness_.reset();
  setup_.writer.max_queue_pairs = 256;
  setup_.reader.max_queue_pairs = 3;
  make();
  EXPECT_NE(harness_->viability().reason.find("this node has as many queue pairs"), std::string::npos);
  EXPECT_EQ(kind_name(read_own(10)), "not_viable");
}

}  // namespace
}  // namespace stagewire::testing_support
