// Framing, order, bounds and descriptors of a connection whose other end is this test or another connection.
#include "session/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "session/loop_support.h"

namespace stagewire::test {
namespace {

std::string frame_bytes(const wire::Frame& frame, bool with_descriptor = false) {
  std::string bytes;
  EXPECT_TRUE(wire::encode(frame, with_descriptor, 0, bytes).ok());
  return bytes;
}

class ConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto [here, there] = socket_pair();
    raw = std::move(there);
    connection = std::make_shared<Connection>(loop, std::move(here), options());
  }
  void TearDown() override {
    on_loop(loop, [this] {
      connection->close();
      return 0;
    });
    connection.reset();
    loop.stop();
  }
  virtual Connection::Options options() {
    Connection::Options result;
    result.unix_socket = true;
    return result;
  }
  void start() {
    on_loop(loop, [this] {
      connection->start({.on_frame = [this](wire::Frame frame, Fd descriptor) -> Status {
                           descriptors.add(static_cast<bool>(descriptor));
                           const bool poison = std::holds_alternative<wire::Settled>(frame) &&
                                               std::get<wire::Settled>(frame).claim == kPoison;
                           frames.add(std::move(frame));
                           if (poison) return Error(ErrorKind::protocol, "poison");
                           return {};
                         },
                         .on_closed = [this](Error error) { ends.add(std::move(error)); }});
      return 0;
    });
  }
  /// A connection at the other end instead of the raw socket.
  std::shared_ptr<Connection> other_end() {
    auto other = std::make_shared<Connection>(loop, std::move(raw), options());
    on_loop(loop, [&other] {
      other->start(
          {.on_frame = [](const wire::Frame& /*frame*/, const Fd& /*descriptor*/) { return Status(); },
           .on_closed = [](const Error& error) { ADD_FAILURE() << error; }});
      return 0;
    });
    return other;
  }
  /// These `settled` frames, in this order, were all that was sent.
  void expect_received(const std::vector<std::uint64_t>& claims) {
    std::string expected;
    for (const std::uint64_t claim : claims) expected += frame_bytes(wire::Settled{.claim = claim});
    pollfd wait{.fd = raw.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wait, 1, 60'000), 1);
    std::string received(expected.size() + 1, '\0');
    ASSERT_EQ(::recv(raw.get(), received.data(), received.size(), 0), static_cast<ssize_t>(expected.size()));
    received.pop_back();
    EXPECT_EQ(received, expected);
  }
  void write_raw(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t now = ::send(raw.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now < 0) {
        pollfd wait{.fd = raw.get(), .events = POLLOUT, .revents = 0};
        ASSERT_GT(::poll(&wait, 1, 60'000), 0);
        continue;
      }
      sent += static_cast<std::size_t>(now);
    }
  }
  void expect_end(ErrorKind kind) {
    const std::vector<Error> errors = ends.wait(1);
    ASSERT_FALSE(errors.empty());
    EXPECT_EQ(to_string(errors[0].kind()), to_string(kind)) << errors[0];
    EXPECT_EQ(on_loop(loop, [this] { return ends.size(); }), 1U);
  }

  static constexpr std::uint64_t kPoison = 1'000'000;
  EventLoop loop{"test"};
  std::shared_ptr<Connection> connection;
  Fd raw;
  Collected<wire::Frame> frames;
  Collected<bool> descriptors;
  Collected<Error> ends;
};

TEST_F(ConnectionTest, TakesFramesHoweverTheyAreCut) {
  start();
  const std::string bytes = frame_bytes(wire::Settled{.claim = 1}) + frame_bytes(wire::Settled{.claim = 2});
  for (const char byte : bytes) write_raw(std::string(1, byte));
  write_raw(bytes + bytes);
  const auto got = frames.wait(6);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::get<wire::Settled>(got[i]).claim, i % 2 + 1);
}

TEST_F(ConnectionTest, FramesBeforeTheEndOfTheStreamAreStillDelivered) {
  write_raw(frame_bytes(wire::Goodbye{.kind = ErrorKind::closed, .message = "bye"}));
  raw.reset();
  start();
  EXPECT_TRUE(std::holds_alternative<wire::Goodbye>(frames.wait(1).at(0)));
  expect_end(ErrorKind::peer_lost);
}

TEST_F(ConnectionTest, GarbageEndsIt) {
  start();
  write_raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_end(ErrorKind::protocol);
  EXPECT_EQ(frames.size(), 0U);
}

TEST_F(ConnectionTest, AnAnnouncedSizeIsNotBelieved) {
  start();
  std::string header = frame_bytes(wire::Settled{.claim = 1}).substr(0, wire::kFrameHeaderSize);
  const std::uint32_t huge = wire::kMaxFrame + 1;
  header.replace(0, 4, reinterpret_cast<const char*>(&huge), 4);
  write_raw(header);
  expect_end(ErrorKind::protocol);
}

TEST_F(ConnectionTest, AnErrorOfTheHandlerEndsItAndNothingMoreIsDelivered) {
  start();
  write_raw(frame_bytes(wire::Settled{.claim = kPoison}) + frame_bytes(wire::Settled{.claim = 2}));
  expect_end(ErrorKind::protocol);
  EXPECT_EQ(frames.size(), 1U);
  EXPECT_EQ(connection->send(wire::Settled{.claim = 1}).error().kind(), ErrorKind::peer_lost);
}

TEST_F(ConnectionTest, AnAnnouncedDescriptorThatDoesNotComeEndsIt) {
  start();
  write_raw(frame_bytes(wire::Lifeline{}, true));
  expect_end(ErrorKind::protocol);
}

TEST_F(ConnectionTest, PassesDescriptorsWithTheirFrames) {
  auto [here, there] = socket_pair();
  const auto other = other_end();
  start();
  static_cast<void>(there);
  EXPECT_TRUE(other->send(wire::Settled{.claim = 1}).ok());
  EXPECT_TRUE(other->send(wire::Lifeline{}, here.get()).ok());
  EXPECT_TRUE(other->send(wire::Settled{.claim = 2}).ok());
  frames.wait(3);
  EXPECT_EQ(descriptors.wait(3), (std::vector<bool>{false, true, false}));
  on_loop(loop, [&] {
    other->close();
    return 0;
  });
}

TEST_F(ConnectionTest, StrayDescriptorsEndIt) {
  start();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string bytes = frame_bytes(wire::Settled{.claim = 1});
  // More descriptors than any frame announced; the first that is over the bound ends the connection.
  for (int i = 0; i < 20; ++i) {
    iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = null.get();
    std::copy_n(reinterpret_cast<const char*>(&fd), sizeof(fd), reinterpret_cast<char*>(CMSG_DATA(header)));
    if (::sendmsg(raw.get(), &message, MSG_NOSIGNAL) < 0) break;
  }
  expect_end(ErrorKind::protocol);
}

TEST_F(ConnectionTest, LazyFramesRideBehindOthersAndKeepTheirOrder) {
  start();
  on_loop(loop, [&] {
    connection->send_lazily(wire::Settled{.claim = 1});
    connection->send_lazily(wire::Settled{.claim = 2});
    pollfd wait{.fd = raw.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&wait, 1, 0), 0) << "nothing was sent";
    EXPECT_TRUE(connection->send(wire::Settled{.claim = 3}).ok());
  });
  expect_received({3, 1, 2});
}

TEST_F(ConnectionTest, LazyFramesGoBeforeAGoodbye) {
  start();
  connection->send_lazily(wire::Settled{.claim = 1});
  EXPECT_TRUE(connection->send(wire::Goodbye{.kind = ErrorKind::closed, .message = "bye"}).ok());
  const std::string expected = frame_bytes(wire::Settled{.claim = 1}) +
                               frame_bytes(wire::Goodbye{.kind = ErrorKind::closed, .message = "bye"});
  std::string received(expected.size(), '\0');
  ASSERT_EQ(::recv(raw.get(), received.data(), received.size(), 0), static_cast<ssize_t>(received.size()));
  EXPECT_EQ(received, expected);
}

TEST_F(ConnectionTest, LazyFramesOfTheLoopLeaveByThemselves) {
  start();
  for (const std::uint64_t claim : {1U, 2U}) {
    on_loop(loop, [&] { connection->send_lazily(wire::Settled{.claim = claim}); });
    expect_received({claim});
  }
  // The one that may wait longer does not hold up the other.
  on_loop(loop, [&] {
    connection->send_lazily(wire::Settled{.claim = 3}, std::chrono::minutes(10));
    connection->send_lazily(wire::Settled{.claim = 4});
  });
  expect_received({3, 4});
}

TEST_F(ConnectionTest, FramesThatNeedNotHurryRideManyAtATimeOrWithAFlush) {
  start();
  const auto keep = [&](std::uint64_t claim) {
    on_loop(loop, [&] { connection->send_lazily(wire::Settled{.claim = claim}, std::chrono::minutes(10)); });
  };
  keep(1);
  EXPECT_TRUE(connection->send(wire::Settled{.claim = 100}).ok());
  expect_received({100});
  connection->flush();
  expect_received({1});
  std::vector<std::uint64_t> expected{100};
  for (std::uint64_t claim = 1; claim <= 16; ++claim) {
    keep(claim);
    expected.push_back(claim);
  }
  EXPECT_TRUE(connection->send(wire::Settled{.claim = 100}).ok());
  expect_received(expected);
}

TEST_F(ConnectionTest, WhatTheLoopSendsInABatchLeavesAtItsEnd) {
  start();
  pollfd wait{.fd = raw.get(), .events = POLLIN, .revents = 0};
  on_loop(loop, [&] {
    connection->hold();
    EXPECT_TRUE(connection->send(wire::Settled{.claim = 1}).ok());
    connection->send_lazily(wire::Settled{.claim = 2});
    EXPECT_EQ(::poll(&wait, 1, 0), 0) << "nothing was sent";
    connection->release_hold();
    EXPECT_EQ(::poll(&wait, 1, 0), 1);
  });
  on_loop(loop, [&] {
    connection->hold();
    connection->send_lazily(wire::Settled{.claim = 4});
  });
  // Another thread's frame does not wait, and takes along what is there.
  EXPECT_TRUE(connection->send(wire::Settled{.claim = 3}).ok());
  expect_received({1, 2, 3, 4});
  on_loop(loop, [&] { connection->release_hold(); });
}

// Acknowledgements that came along are handled when the answer to what came before them has left.
TEST_F(ConnectionTest, AnAnswerDoesNotWaitForAcknowledgements) {
  pollfd wait{.fd = raw.get(), .events = POLLIN, .revents = 0};
  Collected<int> left;
  on_loop(loop, [&] {
    connection->start({.on_frame = [&](const wire::Frame& frame, const Fd& /*descriptor*/) -> Status {
                         if (std::holds_alternative<wire::CancelClaim>(frame))
                           return connection->send(wire::Settled{.claim = 1});
                         left.add(::poll(&wait, 1, 0));
                         return {};
                       },
                       .on_closed = [](const Error& error) { ADD_FAILURE() << error; }});
  });
  write_raw(frame_bytes(wire::CancelClaim{.claim = 1}) + frame_bytes(wire::Consumed{.claim = 2, .lease = 3}));
  EXPECT_EQ(left.wait(1).front(), 1);
  expect_received({1});
}

class AuthenticatedTest : public ConnectionTest {
 protected:
  Connection::Options options() override {
    Connection::Options result = ConnectionTest::options();
    result.outgoing = FrameAuth(SessionKey{}, true);
    return result;
  }
};

// A frame that was sealed and not sent would make all that follow fail their check.
TEST_F(AuthenticatedTest, ADescriptorThatCannotBePassedLeavesTheSessionWhole) {
  start();
  const wire::Frame memory =
      wire::Memory{.memory = 1, .size = 4096, .kind = {}, .transport = "shm", .token = "t"};
  constexpr int kNotOpen = 1'000'000;
  const Status refused = connection->send(memory, kNotOpen);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::io) << refused.error();
  EXPECT_TRUE(connection->send(wire::Settled{.claim = 1}).ok());
  std::string expected;
  ASSERT_TRUE(wire::encode(wire::Settled{.claim = 1}, false, wire::kTagSize, expected).ok());
  FrameAuth(SessionKey{}, true).seal(expected);
  std::string received(expected.size(), '\0');
  ASSERT_EQ(::recv(raw.get(), received.data(), received.size(), 0), static_cast<ssize_t>(received.size()));
  EXPECT_EQ(received, expected);
}

class SmallQueueTest : public ConnectionTest {
 protected:
  Connection::Options options() override {
    Connection::Options result = ConnectionTest::options();
    result.max_queued = 1 << 20;
    return result;
  }
};

TEST_F(SmallQueueTest, APeerThatDoesNotReadCostsBoundedMemory) {
  start();
  const wire::Goodbye large{.kind = ErrorKind::closed, .message = std::string(wire::kMaxErrorText, 'x')};
  Status status;
  for (int i = 0; i < 100'000 && status.ok(); ++i) status = connection->send(large);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::peer_lost);
  expect_end(ErrorKind::peer_lost);
}

TEST_F(SmallQueueTest, ASlowPeerGetsEverythingInOrder) {
  start();
  const auto other = other_end();
  on_loop(loop, [&] {
    // Watched, as every connection in use is: that is how it learns that the socket takes bytes again.
    other->start(
        {.on_frame = [](const wire::Frame& /*frame*/, const Fd& /*descriptor*/) -> Status { return {}; },
         .on_closed = [](const Error& /*error*/) {}});
    return 0;
  });
  constexpr std::uint64_t kCount = 2000;
  std::thread sender([&] {
    const Deadline guard = Deadline::in(std::chrono::seconds(60));
    for (std::uint64_t i = 0; i < kCount; ++i) {
      // Within the bound whatever the peer does: the reader sets the pace.
      while (i > frames.size() + 200 && !guard.passed()) std::this_thread::yield();
      const Status sent = other->send(wire::Settled{.claim = i});
      if (!sent.ok()) {
        ADD_FAILURE() << "frame " << i << ": " << sent.error();
        return;
      }
    }
  });
  const auto got = frames.wait(kCount);
  sender.join();
  for (std::uint64_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::get<wire::Settled>(got[i]).claim, i);
  on_loop(loop, [&] {
    other->close();
    return 0;
  });
}

TEST_F(ConnectionTest, ANewOwnerGetsWhatTheOldOneLeft) {
  Collected<std::uint64_t> first;
  on_loop(loop, [&] {
    connection->start({.on_frame = [&](const wire::Frame& frame, const Fd& /*descriptor*/) -> Status {
                         first.add(std::get<wire::Settled>(frame).claim);
                         connection->detach();
                         return {};
                       },
                       .on_closed = [](const Error& /*error*/) { ADD_FAILURE(); }});
    return 0;
  });
  std::string bytes;
  for (std::uint64_t i = 1; i <= 3; ++i) bytes += frame_bytes(wire::Settled{.claim = i});
  write_raw(bytes);
  EXPECT_EQ(first.wait(1), std::vector<std::uint64_t>{1});
  start();
  const auto got = frames.wait(2);
  EXPECT_EQ(std::get<wire::Settled>(got[0]).claim, 2U);
  EXPECT_EQ(std::get<wire::Settled>(got[1]).claim, 3U);
  EXPECT_EQ(first.size(), 1U);
}

TEST_F(ConnectionTest, ManyThreadsMaySendAtOnce) {
  start();
  const auto other = other_end();
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 250; ++i) {
        if (i % 3 == 0) {
          other->send_lazily(wire::Settled{.claim = t * 1000 + i});
        } else {
          EXPECT_TRUE(other->send(wire::Settled{.claim = t * 1000 + i}).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  other->flush();
  const auto got = frames.wait(1000);
  // Each thread's frames keep their order, those that were sent and those that rode along.
  std::array<std::array<std::uint64_t, 2>, 4> last{};
  std::set<std::uint64_t> seen;
  for (const wire::Frame& frame : got) {
    const std::uint64_t claim = std::get<wire::Settled>(frame).claim;
    EXPECT_TRUE(seen.insert(claim).second) << claim;
    std::uint64_t& before = last.at(claim / 1000).at(claim % 1000 % 3 == 0 ? 0 : 1);
    EXPECT_GE(claim, before);
    before = claim;
  }
  on_loop(loop, [&] {
    other->close();
    return 0;
  });
}

}  // namespace
}  // namespace stagewire::test
