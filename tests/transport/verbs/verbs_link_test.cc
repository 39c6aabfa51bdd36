// Links over fake adapters: what is asked of the adapter, what peers may and may not say, and whom a link is
// viable with.
#include "transport/verbs/verbs_link.h"

#include <gtest/gtest.h>

#include "transport/verbs/verbs_real.h"
#include "verbs_fixture.h"

namespace stagewire::testing_support {
namespace {

using namespace verbs_wire;
using VerbsLinkTest = VerbsTest;

TEST_F(VerbsLinkTest, PeersGetReadAccessToPublishMemoryAndNothingElse) {
  start();
  EXPECT_EQ(kind_name(read_own(100)), "ok");
  bool remote_read = false;
  bool local_write = false;
  for (const unsigned access : fake_->registration_access()) {
    const unsigned plain = access & ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING);
    EXPECT_TRUE(plain == IBV_ACCESS_REMOTE_READ || plain == IBV_ACCESS_LOCAL_WRITE) << plain;
    EXPECT_NE(access & IBV_ACCESS_RELAXED_ORDERING, 0U);
    remote_read = remote_read || plain == IBV_ACCESS_REMOTE_READ;
    local_write = local_write || plain == IBV_ACCESS_LOCAL_WRITE;
  }
  EXPECT_TRUE(remote_read);
  EXPECT_TRUE(local_write);
}

TEST_F(VerbsLinkTest, AgreesOnDepthAndMtu) {
  std::vector<FakeDevice> devices = two_fake_devices();
  devices[0].max_init_rd_atomic = 12;
  devices[0].mtu = IBV_MTU_4096;
  devices[1].max_rd_atomic = 5;
  devices[1].mtu = IBV_MTU_2048;
  fake_ = std::make_shared<FakeVerbs>(devices);
  setup_.reader.traffic_class = 104;
  setup_.reader.service_level = 3;
  setup_.reader.hop_limit = 9;
  setup_.reader.timeout = 11;
  setup_.reader.retry_count = 2;
  setup_.reader.rnr_retry = 1;
  start();
  bool reader_seen = false;
  for (const ibv_qp_attr& rtr : fake_->attributes(IBV_QPS_RTR)) {
    EXPECT_EQ(rtr.path_mtu, IBV_MTU_2048);
    EXPECT_EQ(rtr.ah_attr.is_global, 1);
    EXPECT_EQ(rtr.ah_attr.grh.sgid_index, 1);
    EXPECT_TRUE(rtr.max_dest_rd_atomic == 0 || rtr.max_dest_rd_atomic == 5);
    if (rtr.max_dest_rd_atomic != 0) continue;
    reader_seen = true;
    EXPECT_EQ(rtr.ah_attr.grh.traffic_class, 104);
    EXPECT_EQ(rtr.ah_attr.grh.hop_limit, 9);
    EXPECT_EQ(rtr.ah_attr.sl, 3);
  }
  EXPECT_TRUE(reader_seen);
  bool depth_seen = false;
  for (const ibv_qp_attr& rts : fake_->attributes(IBV_QPS_RTS)) {
    if (rts.max_rd_atomic == 0) continue;
    depth_seen = true;
    EXPECT_EQ(rts.max_rd_atomic, 5);
    EXPECT_EQ(rts.timeout, 11);
    EXPECT_EQ(rts.retry_cnt, 2);
    EXPECT_EQ(rts.rnr_retry, 1);
  }
  EXPECT_TRUE(depth_seen);
}

TEST_F(VerbsLinkTest, PostsChainsWithFewSignals) {
  start();
  ReadRequest pages{kLease, {}, {}};
  for (std::uint64_t i = 0; i < 200; ++i) {
    pages.from.push_back({kMemory, (199 - i) * 8192, 4096});
    pages.to.push_back({pool_->base() + i * 4096, 4096});
  }
  const std::size_t chains = fake_->posted_chains();
  const std::size_t signalled = fake_->signalled();
  const std::size_t posted = fake_->posted();
  ASSERT_EQ(kind_name(harness_->read_now(pages)), "ok");
  EXPECT_EQ(fake_->posted() - posted, 200U);
  EXPECT_LE(fake_->posted_chains() - chains, 10U);
  EXPECT_EQ(fake_->signalled() - signalled, fake_->posted_chains() - chains);
}

TEST_F(VerbsLinkTest, ClosesQueuePairsThatNobodyUsesAndConnectsAgain) {
  setup_.reader.idle_timeout = std::chrono::milliseconds(10);
  start();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(kind_name(harness_->read_now(request(kSize))), "ok") << i;
    EXPECT_TRUE(fake_->wait_for_queue_pairs(0)) << "at either end";
  }
  EXPECT_GE(metric("stagewire_verbs_connections_total"), 3 * setup_.reader.queue_pairs);
}

TEST_F(VerbsLinkTest, DoesNotCloseQueuePairsUnderAReadThatTakesLong) {
  setup_.reader.idle_timeout = std::chrono::milliseconds(1);
  start();
  fake_->hold();
  const Outcome outcome = make_outcome();
  harness_->read(request(kSize), outcome);
  ASSERT_TRUE(fake_->wait_for_requests(2));
  ASSERT_TRUE(fake_->step(1));
  fake_->release();
  EXPECT_EQ(kind_name(outcome->wait()), "ok");
  EXPECT_TRUE(same(kSize));
}

TEST_F(VerbsLinkTest, GoesOnBeyondTheQueueDepth) {
  setup_.reader.send_queue_depth = 3;
  setup_.reader.chunk_size = 4096;
  start();
  ASSERT_EQ(kind_name(harness_->read_now(request(1 << 20))), "ok");
  EXPECT_TRUE(same(1 << 20));
}

TEST_F(VerbsLinkTest, SplitsLargeMemoryUnderTheAdaptersLimit) {
  std::vector<FakeDevice> devices = two_fake_devices();
  devices[1].max_mr_size = (1 << 20) + 17;
  devices[0].max_mr_size = 3 << 19;
  fake_ = std::make_shared<FakeVerbs>(devices);
  start();
  ASSERT_EQ(kind_name(harness_->read_now(request(kSize))), "ok");
  EXPECT_TRUE(same(kSize));
}

TEST_F(VerbsLinkTest, CompletionsOfDifferentQueuePairsMayComeInAnyOrder) {
  setup_.reader.queue_pairs = 4;
  start();
  fake_->hold_completions();
  const Outcome outcome = make_outcome();
  harness_->read(request(kSize), outcome);
  run_on(harness_->loop(), [] {});
  EXPECT_FALSE(outcome->happened());
  fake_->release_completions();
  EXPECT_EQ(kind_name(outcome->wait()), "ok");
  EXPECT_TRUE(same(kSize));
}

TEST_F(VerbsLinkTest, PeersMustStandOnTheSameKindOfNetwork) {
  start();
  const auto viability_with = [&](const Hello& hello) {
    Viability viability;
    TestChannel channel;
    run_on(harness_->loop(), [&] {
      auto link = harness_->reader_transport().connect(channel, encode(hello));
      ASSERT_TRUE(link.ok());
      viability = (*link)->viability(MemoryKind::host(), MemoryKind::host());
      (*link)->close([] {});
    });
    return viability;
  };
  Hello hello{true, {2, 5, 0, ipv4_gid(10, 9, 0, 9)}};
  EXPECT_TRUE(viability_with(hello).viable);
  hello.port.link_layer = 1;
  EXPECT_NE(viability_with(hello).reason.find("the peer's is InfiniBand"), std::string::npos);
  hello.port.link_layer = 2;
  hello.port.gid = Gid{0xFD, 1, 2};
  EXPECT_NE(viability_with(hello).reason.find("one is IPv4 and the other IPv6"), std::string::npos);
  EXPECT_NE(viability_with(Hello{}).reason.find("the peer has no RDMA device"), std::string::npos);
  run_on(harness_->loop(), [&] {
    TestChannel channel;
    EXPECT_EQ(harness_->reader_transport().connect(channel, "x").error().kind(), ErrorKind::version_mismatch);
  });
}

TEST_F(VerbsLinkTest, RefusesWhatAPeerMustNotSay) {
  start();
  const auto to_writer = [&](const Message& message) {
    Status status;
    run_on(harness_->loop(), [&] { status = harness_->writer()->on_message(encode(message)); });
    return kind_name(status);
  };
  const auto to_reader = [&](const Message& message) {
    Status status;
    run_on(harness_->loop(), [&] { status = harness_->reader()->on_message(encode(message)); });
    return kind_name(status);
  };
  const Port port{2, 5, 0, ipv4_gid(10, 9, 0, 1)};
  EXPECT_EQ(to_writer(Connect{1, port, 1, {{1, 1}}}), "protocol");  // the reader's own connection
  EXPECT_EQ(to_writer(Drop{1, 0xABCDEF}), "protocol");              // a queue pair that is not its own
  EXPECT_EQ(to_writer(Drop{99, 1}), "ok");                          // of a connection that is gone
  EXPECT_EQ(to_reader(Connected{99, port, 1, {{1, 1}}}), "protocol");
  EXPECT_EQ(to_reader(Refused{99, ErrorKind::busy, "no"}), "protocol");
  EXPECT_EQ(to_reader(Key{kMemory, 0x1000, 4096, 4096, {1}}), "protocol");  // another size
  EXPECT_EQ(to_reader(Key{8, 0x1000, 4096, 4096, {1}}), "protocol");        // never announced
  EXPECT_EQ(to_reader(NoKey{8, ErrorKind::io, "no"}), "protocol");
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "ok");  // and goes on
}

TEST_F(VerbsLinkTest, AWrongKeyOfThePeerIsATypedErrorAndNothingMore) {
  start();
  run_on(harness_->loop(), [&] {
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(harness_->pool().base());
    EXPECT_TRUE(
        harness_->reader()->on_message(encode(Message(Key{kMemory, address, kSize, kSize, {0x4242}}))).ok());
  });
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "lease_lost");
}

TEST_F(VerbsLinkTest, OnePeerCannotHaveMoreThanItsShareOfQueuePairs) {
  start();
  std::vector<std::string> answers;
  TestChannel channel;
  channel.on_send = [&](std::string message) { answers.push_back(std::move(message)); };
  std::unique_ptr<Link> link;
  run_on(harness_->loop(), [&] {
    const Port port{2, 5, 0, ipv4_gid(10, 9, 0, 1)};
    link = std::move(*harness_->writer_transport().connect(channel, encode(Hello{true, port})));
    for (std::uint64_t request = 1; request <= 2; ++request) {
      const std::vector<Queue> queues(kMaxVerbsQueuesPerPeer - 1, Queue{5, 5});
      EXPECT_TRUE(link->on_message(encode(Message(Connect{request, port, 1, queues}))).ok());
    }
    ASSERT_EQ(answers.size(), 1U);  // the first is still being made
    const auto refused = std::get<Refused>(*decode(answers[0]));
    EXPECT_EQ(refused.request, 2U);
    EXPECT_EQ(refused.kind, ErrorKind::busy);
  });
  run_on(harness_->loop(), [&] {
    link->close([] {});
    link.reset();
  });
}

TEST_F(VerbsLinkTest, APortOfAnotherKindIsNotConnectedTo) {
  start();
  const std::vector<std::pair<Port, std::string>> ports{
      {Port{2, 5, 0, Gid{0xFD, 1, 2}}, "one is IPv4 and the other IPv6"},
      {Port{1, 5, 7, Gid{0xFE, 0x80}}, "the peer's is InfiniBand"}};
  for (const auto& [port, expected] : ports) {
    std::vector<std::string> answers;
    TestChannel channel;
    channel.on_send = [&](std::string message) { answers.push_back(std::move(message)); };
    std::unique_ptr<Link> link;
    run_on(harness_->loop(), [&] {
      const Hello hello{true, {2, 5, 0, ipv4_gid(10, 9, 0, 1)}};
      link = std::move(*harness_->writer_transport().connect(channel, encode(hello)));
      EXPECT_TRUE(link->on_message(encode(Message(Connect{1, port, 1, {{5, 5}}}))).ok());
      ASSERT_EQ(answers.size(), 1U);
      const auto refused = std::get<Refused>(*decode(answers[0]));
      EXPECT_EQ(refused.kind, ErrorKind::not_viable);
      EXPECT_NE(refused.text.find(expected), std::string::npos) << refused.text;
      link->close([] {});
      link.reset();
    });
  }
  EXPECT_EQ(kind_name(harness_->read_now(request(100))), "ok");
}

TEST_F(VerbsLinkTest, AnAnswerFromAPortOfAnotherKindEndsTheConnection) {
  start();
  TestChannel channel;
  channel.on_same_host = false;  // then it connects as soon as there is something to read
  Once<Connect> asked;
  std::vector<Drop> dropped;
  channel.on_send = [&](const std::string& text) {
    const auto message = decode(text);
    ASSERT_TRUE(message.ok());
    if (const auto* connect = std::get_if<Connect>(&*message)) asked.set(*connect);
    if (const auto* drop = std::get_if<Drop>(&*message)) dropped.push_back(*drop);
  };
  std::unique_ptr<Link> link;
  run_on(harness_->loop(), [&] {
    const Hello hello{true, {2, 5, 0, ipv4_gid(10, 9, 0, 9)}};
    link = std::move(*harness_->reader_transport().connect(channel, encode(hello)));
    ImportedMemory memory;
    memory.memory = 20;
    memory.size = 4096;
    memory.token = verbs_link::make_token();
    ASSERT_TRUE(link->attach(std::move(memory)).ok());
  });
  const Connect connect = asked.wait();
  run_on(harness_->loop(), [&] {
    const Port other{2, 5, 0, Gid{0xFD, 1, 2}};
    const std::vector<Queue> queues(connect.queues.size(), Queue{5, 5});
    EXPECT_TRUE(link->on_message(encode(Message(Connected{connect.request, other, 1, queues}))).ok());
    EXPECT_EQ(dropped.size(), queues.size()) << "the peer is told that its queue pairs are not wanted";
    const Viability viability = link->viability(MemoryKind::host(), MemoryKind::host());
    EXPECT_NE(viability.reason.find("one is IPv4 and the other IPv6"), std::string::npos) << viability.reason;
    link->close([] {});
    link.reset();
  });
}

TEST_F(VerbsLinkTest, AnnouncementsAreChecked) {
  start();
  const auto attach = [&](ImportedMemory memory) {
    Status status;
    run_on(harness_->loop(), [&] { status = harness_->reader()->attach(std::move(memory)); });
    return kind_name(status);
  };
  const auto memory = [](std::uint32_t id) {
    ImportedMemory made;
    made.memory = id;
    made.size = 4096;
    made.token = verbs_link::make_token();
    return made;
  };
  ImportedMemory bad = memory(20);
  bad.token = "other";
  EXPECT_EQ(attach(std::move(bad)), "protocol");
  bad = memory(20);
  bad.size = 0;
  EXPECT_EQ(attach(std::move(bad)), "protocol");
  bad = memory(20);
  bad.kind = MemoryKind{MemoryKind::Type::cuda, 0};
  EXPECT_EQ(attach(std::move(bad)), "protocol");
  EXPECT_EQ(attach(memory(kMemory)), "protocol");  // twice
}

TEST_F(VerbsLinkTest, ReceiveAndDeviceMemoryIsNeverExported) {
  start();
  run_on(harness_->loop(), [&] {
    EXPECT_FALSE(harness_->writer_transport().export_memory(ExportedMemory::of(1, pool_)).ok());
    EXPECT_FALSE(harness_->writer_transport().export_memory(ExportedMemory::of(1, nullptr)).ok());
  });
}

// --- Without a device.

class VerbsTransportTest : public ::testing::Test {
 protected:
  ~VerbsTransportTest() override { loop_.stop(); }
  Result<std::unique_ptr<VerbsTransport>> make(const VerbsOptions& options,
                                               const VerbsTransport::OpenApi& open) {
    return VerbsTransport::create(
        options, loop_,
        [this](EventLoop::Task task) {
          loop_.post(std::move(task));
          return true;
        },
        Logger::create("test", LogLevel::off), metrics_, open);
  }
  VerbsTransport::OpenApi over(std::vector<FakeDevice> devices) {
    return [devices]() -> Result<std::shared_ptr<VerbsApi>> {
      return std::shared_ptr<VerbsApi>(std::make_shared<FakeVerbs>(devices));
    };
  }
  Metrics metrics_;
  EventLoop loop_{"test-loop"};
};

TEST_F(VerbsTransportTest, SaysThatTheLibraryIsMissing) {
  auto made = make({}, [] { return open_real_verbs("libnosuchverbs.so.1"); });
  ASSERT_TRUE(made.ok());
  const Viability viability = (*made)->viability();
  EXPECT_FALSE(viability.viable);
  EXPECT_EQ(viability.reason.find("not viable, because libnosuchverbs.so.1 could not be opened"), 0U)
      << viability.reason;
  EXPECT_NE(viability.reason.find("apt-get install ibverbs-providers libibverbs1"), std::string::npos);
  EXPECT_EQ((*made)->hello(), encode(Hello{}));
}

TEST_F(VerbsTransportTest, SaysWhichSymbolIsMissing) {
  const auto opened = open_real_verbs("libm.so.6");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message().find("libm.so.6 has no ibv_get_device_list"), std::string::npos)
      << opened.error();
}

TEST_F(VerbsTransportTest, SaysThatThereIsNoDevice) {
  auto made = make({}, over({}));
  ASSERT_TRUE(made.ok());
  EXPECT_NE((*made)->viability().reason.find("no RDMA device"), std::string::npos);
}

TEST_F(VerbsTransportTest, ADeviceThatDoesNotExistIsAConfigurationError) {
  VerbsOptions options;
  options.device = "mlx5_7";
  auto made = make(options, over({fake_roce("fake0", 1), fake_roce("fake1", 2)}));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind(), ErrorKind::config);
  EXPECT_NE(made.error().message().find("fake0, fake1"), std::string::npos);
}

TEST_F(VerbsTransportTest, ExplainsItsChoice) {
  FakeDevice down = fake_roce("fake1", 2);
  down.state = IBV_PORT_DOWN;
  auto made = make({}, over({fake_roce("fake0", 1), down}));
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE((*made)->viability().viable);
  const std::string table = (*made)->explain();
  EXPECT_NE(table.find("* fake0 port 1 GID 1 (10.9.0.1, RoCE v2)"), std::string::npos) << table;
  EXPECT_NE(table.find("- fake1 port 1: the port is down"), std::string::npos) << table;
}

TEST_F(VerbsTransportTest, ChecksItsOptions) {
  const auto refused = [&](auto change) {
    VerbsOptions options;
    change(options);
    const auto made = make(options, over({fake_roce("fake0", 1)}));
    return !made.ok() && made.error().kind() == ErrorKind::config;
  };
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.queue_pairs = 0; }));
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.queue_pairs = 17; }));
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.retry_count = 8; }));
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.timeout = 32; }));
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.window = 1; }));
  EXPECT_TRUE(refused([](VerbsOptions& o) { o.mtu = 100; }));
}

}  // namespace
}  // namespace stagewire::testing_support
