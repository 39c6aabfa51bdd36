// One session per pair of nodes, whatever the dials. Each end here has its own loop, as two nodes have.
#include "session/sessions.h"

#include <atomic>
#include <netinet/in.h>
#include <poll.h>

#include "session/loop_support.h"

namespace stagewire::test {
namespace {

class End final : public SessionHandler {
 public:
  explicit End(std::uint8_t number, std::size_t max_sessions = 100) {
    SessionsConfig config;
    config.dial.opening.self.bytes.fill(number);
    config.dial.opening.insecure = true;
    config.max_sessions = max_sessions;
    config.name = "end " + std::to_string(number);
    // No boot id: the sessions stay on TCP, where the address is what was dialled.
    sessions = std::make_unique<Sessions>(loop, worker, config, *this, Logger::create("test", LogLevel::off));
    address =
        on_loop(loop, [this] { return sessions->listen(Address::parse("127.0.0.1:0").value()).value(); });
    id = config.dial.opening.self;
  }
  ~End() override {
    on_loop(loop, [this] {
      sessions->close("the test is over");
      return 0;
    });
    worker.stop();
    loop.stop();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void on_up(const std::shared_ptr<Session>& session) override { ups.add(session); }
  Status on_frame(Session& /*session*/, wire::Frame& frame, Fd /*descriptor*/) override {
    frames.add(std::move(frame));
    return {};
  }
  void on_acknowledged(Session& /*session*/, std::chrono::nanoseconds /*sent*/,
                       std::uint64_t epoch) override {
    acknowledged.add(epoch);
  }
  void on_down(const std::shared_ptr<Session>& session, const Error& error) override {
    sessions->forget(*session);
    downs.add(error.kind());
  }
  Status on_data(Session& /*session*/, Fd /*socket*/, std::uint64_t index) override {
    datas.add(index);
    return {};
  }
  std::uint64_t lease_epoch_for(const NodeId& /*peer*/) override { return 5; }
  std::uint64_t known_epoch_of(const NodeId& /*peer*/) override { return 0; }
  std::uint64_t settled_below(const NodeId& /*peer*/) override { return 0; }

  using Dialed = Collected<Result<std::shared_ptr<Session>>>;
  void dial(const Address& where, Dialed& outcome) {
    loop.post([this, where, &outcome] {
      sessions->connect(
          where, [&outcome](Result<std::shared_ptr<Session>> session) { outcome.add(std::move(session)); });
    });
  }
  std::size_t count() {
    return on_loop(loop, [this] { return sessions->all().size(); });
  }
  std::shared_ptr<Session> only() {
    return on_loop(loop, [this] {
      const auto all = sessions->all();
      EXPECT_EQ(all.size(), 1U);
      return all.empty() ? nullptr : all.front();
    });
  }

  EventLoop loop{"test"};
  Worker worker{"test"};
  NodeId id;
  Address address;
  std::unique_ptr<Sessions> sessions;
  Collected<std::shared_ptr<Session>> ups;
  Collected<ErrorKind> downs;
  Collected<wire::Frame> frames;
  Collected<std::uint64_t> acknowledged;
  Collected<std::uint64_t> datas;
};

bool settle(const std::function<bool()>& condition) {
  const Deadline guard = Deadline::in(kLoopGuard);
  while (!condition()) {
    if (guard.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Sessions, ADialMakesOneSessionAtBothEnds) {
  End a(1);
  End b(2);
  End::Dialed outcome;
  a.dial(b.address, outcome);
  const auto session = outcome.wait(1).at(0);
  ASSERT_TRUE(session.ok()) << session.error();
  EXPECT_EQ((*session)->peer(), b.id);
  EXPECT_EQ(b.ups.wait(1).at(0)->peer(), a.id);
  EXPECT_EQ(a.acknowledged.wait(1).at(0), 5U);
  a.dial(b.address, outcome);
  EXPECT_EQ(outcome.wait(2).at(1).value(), *session) << "the one there is";
  EXPECT_TRUE((*session)->send(wire::Settled{.claim = 9}).ok());
  b.frames.wait(1);
}

TEST(Sessions, ManyDialsShareOneOutcome) {
  End a(1);
  End b(2);
  End::Dialed outcome;
  for (int i = 0; i < 200; ++i) a.dial(b.address, outcome);
  const auto all = outcome.wait(200);
  for (const auto& session : all) EXPECT_EQ(session.value(), all.front().value());
  EXPECT_EQ(b.ups.wait(1).size(), 1U);
  EXPECT_EQ(a.count(), 1U);
  EXPECT_EQ(b.count(), 1U);
}

TEST(Sessions, DialsThatCrossLeaveOneSession) {
  for (int round = 0; round < 10; ++round) {
    End a(1);
    End b(2);
    End::Dialed from_a;
    End::Dialed from_b;
    for (int i = 0; i < 5; ++i) {
      a.dial(b.address, from_a);
      b.dial(a.address, from_b);
    }
    from_a.wait(5);
    from_b.wait(5);
    EXPECT_TRUE(settle([&] {
      const auto at_a = on_loop(a.loop, [&] { return a.sessions->find(b.id); });
      const auto at_b = on_loop(b.loop, [&] { return b.sessions->find(a.id); });
      return at_a && at_b && at_a->tag() == at_b->tag();
    })) << "the ends never agreed on one session";
    const auto session = a.only();
    ASSERT_TRUE(session);
    EXPECT_TRUE(session->send(wire::Settled{.claim = 1}).ok());
    b.frames.wait(1);
  }
}

TEST(Sessions, TwoAddressesOfOneNodeLeadToOneSession) {
  End a(1);
  End b(2);
  const Address second =
      on_loop(b.loop, [&] { return b.sessions->listen(Address::parse("127.0.0.1:0").value()).value(); });
  End::Dialed outcome;
  a.dial(b.address, outcome);
  a.dial(second, outcome);
  const auto all = outcome.wait(2);
  EXPECT_EQ(all[0].value(), all[1].value());
  EXPECT_EQ(a.count(), 1U);
  EXPECT_TRUE(settle([&] { return b.count() == 1; }));
}

TEST(Sessions, ASessionThatOneEndHasLostIsReplaced) {
  End a(2);  // the larger id: the crossing rule alone would keep the old session
  End b(1);
  End::Dialed outcome;
  b.dial(a.address, outcome);
  outcome.wait(1);
  a.ups.wait(1);
  // The responder loses it without a word; the initiator still believes in it.
  const auto lost = a.only();
  on_loop(a.loop, [&] {
    lost->drop();
    a.sessions->forget(*lost);
    return 0;
  });
  End::Dialed again;
  a.dial(b.address, again);
  const auto session = again.wait(1).at(0);
  ASSERT_TRUE(session.ok()) << session.error();
  EXPECT_TRUE(settle([&] {
    const auto at_b = on_loop(b.loop, [&] { return b.sessions->find(a.id); });
    return at_b && at_b->tag() == (*session)->tag();
  }));
}

TEST(Sessions, TheTableIsBounded) {
  End hub(9, 2);
  End a(1);
  End b(2);
  End c(3);
  End::Dialed outcome;
  a.dial(hub.address, outcome);
  outcome.wait(1);
  b.dial(hub.address, outcome);
  outcome.wait(2);
  hub.ups.wait(2);
  End::Dialed third;
  c.dial(hub.address, third);
  third.wait(1);
  EXPECT_TRUE(settle([&] { return c.count() == 0; })) << "the hub says goodbye to it";
  EXPECT_EQ(hub.count(), 2U);
}

TEST(Sessions, AGoodbyeEndsTheOtherEnd) {
  End a(1);
  End b(2);
  End::Dialed outcome;
  a.dial(b.address, outcome);
  outcome.wait(1);
  b.ups.wait(1);
  on_loop(b.loop, [&] {
    b.sessions->close("maintenance");
    return 0;
  });
  EXPECT_EQ(a.downs.wait(1).at(0), ErrorKind::peer_lost);
  End::Dialed again;
  a.dial(b.address, again);
  EXPECT_EQ(again.wait(1).at(0).error().kind(), ErrorKind::unreachable);
}

TEST(Sessions, ADialToNobodyFailsAndSaysWhere) {
  End a(1);
  Address nobody;
  {
    const End gone(2);
    nobody = gone.address;
  }
  End::Dialed outcome;
  a.dial(nobody, outcome);
  const auto failed = outcome.wait(1).at(0);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().kind(), ErrorKind::unreachable);
  EXPECT_NE(failed.error().to_string().find(nobody.to_string()), std::string::npos);
}

TEST(Sessions, ANodeThatDialsItselfGetsNoSession) {
  End a(1);
  End::Dialed outcome;
  a.dial(a.address, outcome);
  outcome.wait(1);
  EXPECT_TRUE(settle([&] { return a.count() == 0; }));
}

TEST(Sessions, DataConnectionsMustBelongToASession) {
  End a(1);
  End b(2);
  End::Dialed outcome;
  a.dial(b.address, outcome);
  const auto session = outcome.wait(1).at(0).value();
  b.ups.wait(1);
  const auto open_with = [&](const std::string& hello) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(b.address.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
    pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
    EXPECT_GT(::poll(&wait, 1, 60'000), 0) << "it was not hung up on";
  };
  SessionTag nobody{};
  open_with(make_data_hello(nobody, 1, session->key()));
  SessionKey wrong{};
  open_with(make_data_hello(session->tag(), 1, wrong));
  EXPECT_EQ(b.datas.size(), 0U);
  open_with(
      make_data_hello(session->tag(), 1, session->key()));  // adopted (and dropped by this test's handler)
  EXPECT_EQ(b.datas.wait(1), std::vector<std::uint64_t>{1});
  open_with(make_data_hello(session->tag(), 1, session->key()));
  EXPECT_EQ(b.datas.size(), 1U) << "an opening is good once";
  EXPECT_EQ(b.count(), 1U);
}

}  // namespace
}  // namespace stagewire::test
