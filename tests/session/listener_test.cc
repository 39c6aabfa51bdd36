// A listener among strangers: garbage, silence, slow drips and floods end by themselves, and it goes on
// serving.
#include "session/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "session/loop_support.h"
#include "session/socket.h"

namespace stagewire::test {
namespace {

const std::string kSecret(32, 's');

class ListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config.self = NodeId::random();
    config.secret = kSecret;
    limits.max_unauthenticated = 4;
    limits.opening_timeout = std::chrono::seconds(30);
  }
  void TearDown() override {
    on_loop(loop, [this] {
      listener.reset();
      dial.reset();
      return 0;
    });
    loop.stop();
  }
  Address listen(const std::string& at = "127.0.0.1:0") {
    return on_loop(loop, [&] {
      auto made = Listener::create(
          loop, Address::parse(at).value(), config, limits, log,
          {.on_control = [this](const OpenedConnection& opened) { controls.add(opened.auth.peer); },
           .on_data = [this](const Fd& /*socket*/, const DataHello& hello) { datas.add(hello.index); }});
      if (!made.ok()) {
        ADD_FAILURE() << made.error();
        return Address();
      }
      listener = std::move(made).value();
      return listener->address();
    });
  }
  Fd connect(const Address& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    return socket;
  }
  /// Waits until the listener has closed the connection.
  static bool hung_up(const Fd& socket) {
    for (;;) {
      pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 60'000) <= 0) return false;
      char byte = 0;
      if (::recv(socket.get(), &byte, 1, 0) <= 0) return true;
    }
  }
  std::size_t unauthenticated() {
    return on_loop(loop, [this] { return limits.unauthenticated; });
  }
  /// The outcome of an honest dial with this secret.
  Result<NodeId> dial_with(const Address& address, const std::string& secret, bool insecure = false) {
    client.self = NodeId::random();
    client.secret = secret;
    client.insecure = insecure;
    Collected<Result<NodeId>> outcome;
    on_loop(loop, [&] {
      dial = Opening::dial(loop, address, client, Deadline::in(std::chrono::seconds(30)),
                           [&outcome](Result<OpenedConnection> opened) {
                             if (opened.ok()) {
                               outcome.add(opened->auth.peer);
                             } else {
                               outcome.add(opened.error());
                             }
                           });
      return 0;
    });
    return outcome.wait(1).at(0);
  }

  EventLoop loop{"test"};
  std::shared_ptr<Logger> log = Logger::create("test", LogLevel::off);
  OpeningConfig config;
  OpeningConfig client;
  OpeningLimits limits;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Opening> dial;
  Collected<NodeId> controls;
  Collected<std::uint64_t> datas;
};

TEST_F(ListenerTest, AcceptsWhoKnowsTheSecret) {
  const Address address = listen();
  EXPECT_NE(address.port, 0);
  const Result<NodeId> found = dial_with(address, kSecret);
  ASSERT_TRUE(found.ok()) << found.error();
  EXPECT_EQ(*found, config.self);
  EXPECT_EQ(controls.wait(1).at(0), client.self);
  EXPECT_EQ(unauthenticated(), 0U);
}

TEST_F(ListenerTest, RefusesWhoDoesNot) {
  const Address address = listen();
  for (const auto& [secret, insecure] :
       {std::pair(std::string(32, 'x'), false), std::pair(std::string(), true)}) {
    const Result<NodeId> found = dial_with(address, secret, insecure);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(to_string(found.error().kind()), to_string(ErrorKind::auth_failed)) << found.error();
  }
  ASSERT_TRUE(dial_with(address, kSecret).ok());
  EXPECT_EQ(controls.wait(1).size(), 1U);
}

TEST_F(ListenerTest, TcpNeedsASecretOrInsecure) {
  config.secret.clear();
  const auto made = on_loop(loop, [&] {
    return Listener::create(loop, Address::parse("127.0.0.1:0").value(), config, limits, log, {}).ok();
  });
  EXPECT_FALSE(made);
}

TEST_F(ListenerTest, GarbageIsHungUpOn) {
  const Address address = listen();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\nAccept: */*\r\n") +
            std::string(200, ' '),
        std::string(kHelloSize, '\0'), std::string(kHelloSize, '\xff'),
        "STGW" + std::string(kHelloSize, '\x7f')}) {
    const Fd socket = connect(address);
    ASSERT_EQ(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(garbage.size()));
    EXPECT_TRUE(hung_up(socket)) << garbage.substr(0, 20);
  }
  EXPECT_TRUE(dial_with(address, kSecret).ok());
}

TEST_F(ListenerTest, ConnectionsThatCloseEarlyLeaveNothing) {
  const Address address = listen();
  for (int i = 0; i < 20; ++i) {
    const Fd socket = connect(address);
    static_cast<void>(::send(socket.get(), "STGW", static_cast<std::size_t>(i % 5), MSG_NOSIGNAL));
  }
  EXPECT_TRUE(dial_with(address, kSecret).ok() || dial_with(address, kSecret).ok());
  const Deadline guard = Deadline::in(kLoopGuard);
  while (unauthenticated() != 0 && !guard.passed()) std::this_thread::yield();
  EXPECT_EQ(unauthenticated(), 0U);
}

TEST_F(ListenerTest, SilentConnectionsAreFewAndShort) {
  limits.opening_timeout = std::chrono::milliseconds(300);
  const Address address = listen();
  std::vector<Fd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connect(address));
  for (const Fd& socket : silent) EXPECT_TRUE(hung_up(socket));
  EXPECT_GT(on_loop(loop, [this] { return limits.refused; }), 0U);
  EXPECT_EQ(unauthenticated(), 0U);
  EXPECT_TRUE(dial_with(address, kSecret).ok());
}

TEST_F(ListenerTest, TheBoundHoldsWhileTheyAreSilent) {
  const Address address = listen();
  std::vector<Fd> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect(address));
  const Deadline guard = Deadline::in(kLoopGuard);
  while (unauthenticated() != 4 && !guard.passed()) std::this_thread::yield();
  const Fd fifth = connect(address);
  EXPECT_TRUE(hung_up(fifth));
  EXPECT_EQ(unauthenticated(), 4U);
  silent.clear();
  while (unauthenticated() != 0 && !guard.passed()) std::this_thread::yield();
  EXPECT_TRUE(dial_with(address, kSecret).ok());
}

TEST_F(ListenerTest, ASlowDripDoesNotProlongTheDeadline) {
  limits.opening_timeout = std::chrono::milliseconds(300);
  const Address address = listen();
  const Fd socket = connect(address);
  const Deadline guard = Deadline::in(kLoopGuard);
  // One byte of a good magic now and then, for as long as the other end listens.
  bool open = true;
  std::size_t sent = 0;
  while (open && !guard.passed()) {
    pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, 20) > 0) {
      open = false;
    } else if (sent < kHelloSize - 1) {
      open = ::send(socket.get(), &"STGW\1\1\1\0\1\0\1"[std::min<std::size_t>(sent++, 10)], 1,
                    MSG_NOSIGNAL) == 1;
    }
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(unauthenticated(), 0U);
}

TEST_F(ListenerTest, ReflectedAndReplayedBytesProveNothing) {
  const Address address = listen();
  // A hello sent back to its maker.
  const Fd socket = connect(address);
  InitiatorHandshake honest(
      {.self = NodeId::random(), .mode = AuthMode::secret, .secret = kSecret, .versions = {}});
  const std::string hello = honest.hello();
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  std::string reply(kHelloSize + kProofSize, '\0');
  ASSERT_EQ(::recv(socket.get(), reply.data(), reply.size(), MSG_WAITALL),
            static_cast<ssize_t>(reply.size()));
  const std::string reflected = reply.substr(kHelloSize);
  ASSERT_EQ(::send(socket.get(), reflected.data(), reflected.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(reflected.size()));
  EXPECT_TRUE(hung_up(socket));
  // The proof of one handshake in another, with the same hello.
  const Result<std::string> proof = honest.on_reply(reply);
  ASSERT_TRUE(proof.ok());
  const Fd again = connect(address);
  ASSERT_EQ(::send(again.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  ASSERT_EQ(::recv(again.get(), reply.data(), reply.size(), MSG_WAITALL), static_cast<ssize_t>(reply.size()));
  ASSERT_EQ(::send(again.get(), proof->data(), proof->size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(proof->size()));
  EXPECT_TRUE(hung_up(again));
  EXPECT_EQ(controls.size(), 0U);
}

TEST_F(ListenerTest, APortInUseIsAnErrorThatNamesIt) {
  const Address address = listen();
  const auto second = on_loop(loop, [&] {
    auto made = Listener::create(loop, address, config, limits, log, {});
    return made.ok() ? std::string("ok") : made.error().to_string();
  });
  EXPECT_NE(second.find(address.to_string()), std::string::npos) << second;
}

TEST_F(ListenerTest, DestructionDropsWhatIsHalfDone) {
  const Address address = listen();
  const Fd socket = connect(address);
  const Deadline guard = Deadline::in(kLoopGuard);
  while (unauthenticated() != 1 && !guard.passed()) std::this_thread::yield();
  on_loop(loop, [this] {
    listener.reset();
    return 0;
  });
  EXPECT_EQ(unauthenticated(), 0U);
  EXPECT_TRUE(hung_up(socket));
}

}  // namespace
}  // namespace stagewire::test
