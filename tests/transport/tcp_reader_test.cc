// A tcp reader against a peer that breaks the rules, is slow, or goes away. The peer is a raw socket that the
// test drives; the reader is a real link.
#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <stagewire/base/metrics.h>

#include "base/log.h"
#include "support.h"
#include "transport/tcp/data_wire.h"
#include "transport/tcp/tcp_transport.h"

namespace stagewire::testing_support {
namespace {

constexpr std::size_t kSize = 100'000;

std::string respond(std::uint64_t read, std::uint32_t chunk, std::uint64_t length, std::uint16_t status = 0) {
  return data_wire::encode_response({status, read, chunk, length});
}

class TcpReaderTest : public ::testing::Test {
 protected:
  void connect(TcpOptions options) {
    auto transport = TcpTransport::create(options, source_, Logger::create("test", LogLevel::off), metrics_);
    ASSERT_TRUE(transport.ok()) << transport.error();
    transport_ = std::move(*transport);
    auto link = transport_->connect(channel_, encode_endpoints({{"127.0.0.1", listener_.port()}}));
    ASSERT_TRUE(link.ok());
    link_ = std::move(*link);
    ASSERT_TRUE(link_->attach({1, 1ULL << 30U, MemoryKind::host(), "", {}}).ok());
    to_.assign(kSize, std::byte{0});
    content_.resize(kSize);
    fill_pattern(reinterpret_cast<std::byte*>(content_.data()), kSize, 9);
  }
  static TcpOptions one_connection(unsigned retries) {
    TcpOptions options;
    options.connections = 1;
    options.retries = retries;
    return options;
  }
  void TearDown() override {
    if (!link_) return;
    Once<bool> closed;
    link_->close([&] { closed.set(true); });
    closed.wait();
    transport_->close();
  }

  ReadId read() {
    outcome_ = make_outcome();
    return link_->read({5, {{1, 0, kSize}}, {{to_.data(), kSize}}}, fill(outcome_));
  }
  // Accepts one data connection and its opening.
  Fd accept() {
    Fd fd = listener_.accept();
    EXPECT_EQ(read_exactly(fd.get(), kDataHelloSize).size(), kDataHelloSize);
    EXPECT_TRUE(write_all(fd.get(), std::string(1, data_wire::kAccepted)));
    return fd;
  }
  // Takes the next request of one range.
  static data_wire::RequestHeader next_request(const Fd& fd) {
    const std::string bytes = read_exactly(fd.get(), data_wire::kRequestHeaderSize + data_wire::kRangeSize);
    auto header = data_wire::decode_request_header(bytes.substr(0, data_wire::kRequestHeaderSize));
    EXPECT_TRUE(header.ok());
    return header.ok() ? *header : data_wire::RequestHeader{};
  }
  void serve(const Fd& fd, const data_wire::RequestHeader& request) {
    write_all(fd.get(), respond(request.read, request.chunk, kSize) + content_);
  }
  bool received() const { return std::memcmp(to_.data(), content_.data(), kSize) == 0; }
  bool untouched(std::byte value) const {
    for (const std::byte b : to_) {
      if (b != value) return false;
    }
    return true;
  }
  std::uint64_t protocol_errors() {
    return metrics_
        .counter("stagewire_tcp_protocol_errors_total",
                 "Data connections closed because the peer broke the protocol")
        .value();
  }

  // The peer answers the first request with `bytes`: the read must end as a protocol error, with not a byte
  // written.
  void expect_protocol_error(const std::string& what,
                             const std::function<std::string(const data_wire::RequestHeader&)>& bytes) {
    SCOPED_TRACE(what);
    connect(one_connection(0));
    read();
    const Fd fd = accept();
    const auto request = next_request(fd);
    write_all(fd.get(), bytes(request));
    const Status status = outcome_->wait();
    EXPECT_EQ(kind_name(status), "protocol");
    EXPECT_TRUE(untouched(std::byte{0}));
    EXPECT_TRUE(wait_for_close(fd.get()));
    EXPECT_GE(protocol_errors(), 1U);
  }

  Metrics metrics_;
  TestSource source_;
  TestChannel channel_;
  Listener listener_;
  std::unique_ptr<TcpTransport> transport_;
  std::unique_ptr<Link> link_;
  std::vector<std::byte> to_;
  std::string content_;
  Outcome outcome_;
};

TEST_F(TcpReaderTest, AsksOnceAndTakesTheAnswer) {
  connect(one_connection(0));
  read();
  const Fd fd = accept();
  const auto request = next_request(fd);
  EXPECT_EQ(request.lease, 5U);
  serve(fd, request);
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_TRUE(received());
}

TEST_F(TcpReaderTest, RefusesAChunkOfAnUnknownRead) {
  expect_protocol_error("unknown read", [](const auto& r) {
    return respond(r.read + 1, r.chunk, kSize) + std::string(64, 'x');
  });
}
TEST_F(TcpReaderTest, RefusesAnUnknownChunk) {
  expect_protocol_error("unknown chunk", [](const auto& r) {
    return respond(r.read, r.chunk + 1, kSize) + std::string(64, 'x');
  });
}
TEST_F(TcpReaderTest, RefusesATooShortChunk) {
  expect_protocol_error(
      "short", [](const auto& r) { return respond(r.read, r.chunk, kSize - 1) + std::string(64, 'x'); });
}
TEST_F(TcpReaderTest, RefusesATooLongChunk) {
  expect_protocol_error("long",
                        [](const auto& r) { return respond(r.read, r.chunk, ~0ULL) + std::string(64, 'x'); });
}
TEST_F(TcpReaderTest, RefusesGarbage) {
  expect_protocol_error("garbage",
                        [](const auto&) { return std::string("HTTP/1.1 400 Bad Request\r\n\r\n........"); });
}
TEST_F(TcpReaderTest, RefusesAnUnknownStatus) {
  expect_protocol_error("status", [](const auto& r) { return respond(r.read, r.chunk, 0, 9999); });
}
TEST_F(TcpReaderTest, RefusesAnEndlessErrorText) {
  expect_protocol_error("text", [](const auto& r) { return respond(r.read, r.chunk, 1U << 30U, 5); });
}

TEST_F(TcpReaderTest, RefusesTheSameChunkTwice) {
  connect(one_connection(0));
  read();
  const Fd fd = accept();
  const auto request = next_request(fd);
  serve(fd, request);
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  to_.assign(kSize, std::byte{7});
  serve(fd, request);
  EXPECT_TRUE(wait_for_close(fd.get()));
  EXPECT_TRUE(untouched(std::byte{7}));
  EXPECT_EQ(protocol_errors(), 1U);
}

TEST_F(TcpReaderTest, RefusesAChunkAskedForOnAnotherConnection) {
  TcpOptions options = one_connection(0);
  options.connections = 2;
  connect(options);
  // One chunk of 100,000 bytes goes over one connection; the other then answers it.
  read();
  const Fd first = accept();
  const Fd second = accept();
  // Whichever was opened first was asked.
  std::string head;
  const Fd* asked = nullptr;
  const Fd* other = nullptr;
  while (asked == nullptr) {
    char peek = 0;
    if (::recv(first.get(), &peek, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
      asked = &first;
      other = &second;
    } else if (::recv(second.get(), &peek, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
      asked = &second;
      other = &first;
    }
  }
  const auto request = next_request(*asked);
  serve(*other, request);
  EXPECT_TRUE(wait_for_close(other->get()));
  EXPECT_TRUE(untouched(std::byte{0}));
  serve(*asked, request);
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_TRUE(received());
}

TEST_F(TcpReaderTest, TakesASlowDrip) {
  connect(one_connection(0));
  read();
  const Fd fd = accept();
  const auto request = next_request(fd);
  const std::string all = respond(request.read, request.chunk, kSize) + content_;
  for (std::size_t at = 0; at < 2000; ++at) ASSERT_TRUE(write_all(fd.get(), all.substr(at, 1)));
  EXPECT_FALSE(outcome_->happened());
  write_all(fd.get(), all.substr(2000));
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_TRUE(received());
}

TEST_F(TcpReaderTest, TranslatesAnErrorAnswer) {
  connect(one_connection(0));
  read();
  const Fd fd = accept();
  const auto request = next_request(fd);
  const std::string text = "the lease\x01 is gone";
  write_all(
      fd.get(),
      respond(request.read, request.chunk, text.size(), data_wire::status_of(ErrorKind::lease_lost)) + text);
  const Status status = outcome_->wait();
  ASSERT_EQ(kind_name(status), "lease_lost");
  EXPECT_EQ(status.error().message(), "the lease? is gone");
  EXPECT_EQ(status.error().transport(), "tcp");
  // The connection is still good.
  read();
  serve(fd, next_request(fd));
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
}

TEST_F(TcpReaderTest, AsksAgainOverANewConnectionWhenOneBreaksInMidChunk) {
  connect(one_connection(3));
  read();
  for (int broken = 0; broken < 3; ++broken) {
    const Fd fd = accept();
    const auto request = next_request(fd);
    write_all(fd.get(), respond(request.read, request.chunk, kSize) + std::string(5000, '!'));
  }
  const Fd fd = accept();
  serve(fd, next_request(fd));
  EXPECT_EQ(kind_name(outcome_->wait()), "ok");
  EXPECT_TRUE(received());
}

TEST_F(TcpReaderTest, GivesUpAfterTheRetries) {
  connect(one_connection(2));
  read();
  for (int broken = 0; broken < 3; ++broken) next_request(accept());
  const Status status = outcome_->wait();
  EXPECT_EQ(kind_name(status), "peer_lost");
  to_.assign(kSize, std::byte{7});
  EXPECT_TRUE(untouched(std::byte{7}));
}

TEST_F(TcpReaderTest, APeerThatDiedIsLost) {
  connect(one_connection(3));
  read();
  {
    const Fd fd = accept();
    next_request(fd);
    listener_.stop_listening();
  }
  EXPECT_EQ(kind_name(outcome_->wait()), "peer_lost");
  read();
  EXPECT_EQ(kind_name(outcome_->wait()), "peer_lost");
}

TEST_F(TcpReaderTest, AClosedPortIsUnreachable) {
  connect(one_connection(1));
  listener_.stop_listening();
  read();
  const Status status = outcome_->wait();
  ASSERT_EQ(kind_name(status), "unreachable");
  EXPECT_NE(status.error().to_string().find("127.0.0.1:"), std::string::npos) << status.error();
}

TEST_F(TcpReaderTest, APeerThatNeverAnswersIsUnreachable) {
  TcpOptions options = one_connection(1);
  options.connect_timeout = std::chrono::milliseconds(50);
  connect(options);
  read();  // the kernel accepts for the listener; nobody gives a verdict
  EXPECT_EQ(kind_name(outcome_->wait()), "unreachable");
}

TEST_F(TcpReaderTest, ARefusedConnectionIsAnAuthenticationFailure) {
  connect(one_connection(0));
  read();
  const Fd fd = listener_.accept();
  read_exactly(fd.get(), kDataHelloSize);
  write_all(fd.get(), std::string(1, data_wire::refusal(ErrorKind::auth_failed)));
  EXPECT_EQ(kind_name(outcome_->wait()), "auth_failed");
}

TEST_F(TcpReaderTest, AbortSettlesWhileThePeerIsFrozenInMidChunk) {
  connect(one_connection(0));
  const ReadId id = read();
  const Fd fd = accept();
  const auto request = next_request(fd);
  write_all(fd.get(), respond(request.read, request.chunk, kSize) + content_.substr(0, kSize / 2));
  // Another read on the same connection waits behind it; its abort is as prompt.
  std::vector<std::byte> behind(kSize);
  const Outcome second = make_outcome();
  const ReadId second_id = link_->read({5, {{1, 0, kSize}}, {{behind.data(), kSize}}}, fill(second));
  const auto second_request = next_request(fd);
  for (const ReadId each : {id, second_id}) {
    Once<bool> settled;
    link_->abort(each, [&] { settled.set(true); });
    settled.wait();
  }
  EXPECT_EQ(kind_name(outcome_->wait()), "cancelled");
  EXPECT_EQ(kind_name(second->wait()), "cancelled");
  to_.assign(kSize, std::byte{7});
  behind.assign(kSize, std::byte{7});
  // The peer goes on: the rest is discarded, and the connection serves the next read.
  write_all(fd.get(), content_.substr(kSize / 2));
  serve(fd, second_request);
  std::vector<std::byte> third(kSize);
  const Outcome last = make_outcome();
  link_->read({5, {{1, 0, kSize}}, {{third.data(), kSize}}}, fill(last));
  serve(fd, next_request(fd));
  EXPECT_EQ(kind_name(last->wait()), "ok");
  EXPECT_EQ(std::memcmp(third.data(), content_.data(), kSize), 0);
  EXPECT_TRUE(untouched(std::byte{7}));
  EXPECT_EQ(std::count(behind.begin(), behind.end(), std::byte{7}), static_cast<std::ptrdiff_t>(kSize));
}

TEST_F(TcpReaderTest, AbortSettlesBeforeAConnectionStands) {
  connect(one_connection(0));
  const ReadId id = read();
  Once<bool> settled;
  link_->abort(id, [&] { settled.set(true); });
  settled.wait();
  EXPECT_EQ(kind_name(outcome_->wait()), "cancelled");
}

TEST_F(TcpReaderTest, TheWindowBoundsWhatIsAskedFor) {
  TcpOptions options = one_connection(0);
  options.chunk_size = 4096;
  options.window = 3;
  connect(options);
  read();
  const Fd fd = accept();
  std::vector<data_wire::RequestHeader> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(next_request(fd));
  // A fourth comes only once one has been answered.
  const std::string first = content_.substr(0, 4096);
  char peek = 0;
  EXPECT_EQ(::recv(fd.get(), &peek, 1, MSG_PEEK | MSG_DONTWAIT), -1);
  write_all(fd.get(), respond(requests[0].read, requests[0].chunk, 4096) + first);
  EXPECT_EQ(next_request(fd).chunk, 3U);
}

TEST_F(TcpReaderTest, IsNotViableWithoutAnAddress) {
  connect(one_connection(0));
  auto link = transport_->connect(channel_, encode_endpoints({}));
  ASSERT_TRUE(link.ok());
  const Viability viability = (*link)->viability(MemoryKind::host(), MemoryKind::host());
  EXPECT_FALSE(viability.viable);
  EXPECT_NE(viability.reason.find("listens on no TCP address"), std::string::npos) << viability.reason;
  EXPECT_FALSE(transport_->connect(channel_, "garbage").ok());
}

TEST(TcpOptionsTest, AreBounded) {
  TestSource source;
  Metrics metrics;
  const auto check = [&](auto change) {
    TcpOptions options;
    change(options);
    auto made = TcpTransport::create(options, source, Logger::create("test", LogLevel::off), metrics);
    return made.ok() ? std::string("ok") : std::string(to_string(made.error().kind()));
  };
  EXPECT_EQ(check([](TcpOptions&) {}), "ok");
  EXPECT_EQ(check([](TcpOptions& o) { o.connections = 0; }), "config");
  EXPECT_EQ(check([](TcpOptions& o) { o.data_threads = 0; }), "config");
  EXPECT_EQ(check([](TcpOptions& o) { o.chunk_size = 16U << 20U; }), "ok");
  EXPECT_EQ(check([](TcpOptions& o) { o.chunk_size = (16U << 20U) + 1; }), "config");
  EXPECT_EQ(check([](TcpOptions& o) { o.window = 129; }), "config");
  EXPECT_EQ(check([](TcpOptions& o) { o.send_buffer = -1; }), "config");
}

}  // namespace
}  // namespace stagewire::testing_support
