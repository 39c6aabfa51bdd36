// A tcp server against readers that break the rules or do not read, and against leases that end. The server
// is a real link behind the harness' listener; hostile readers are raw sockets.
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "harness.h"
#include "support.h"
#include "transport/tcp/data_wire.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_options.h"

namespace stagewire::testing_support {
namespace {

constexpr std::uint64_t kPoolSize = 32ULL << 20U;

class TcpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    harness_ = make_tcp_harness(TcpOptions(), kPoolSize);
    to_.resize(kPoolSize);
  }
  ReadRequest whole() { return {kLease, {{kMemory, 0, kPoolSize}}, {{to_.data(), kPoolSize}}}; }

  // A raw data connection; the harness adopts any opening.
  Fd open(std::uint64_t index) {
    Fd fd = connect_to_harness();
    TestChannel channel;
    write_all(fd.get(), channel.data_hello(index));
    verdict_ = read_exactly(fd.get(), 1);
    return fd;
  }
  Fd connect_to_harness() const { return dial(harness_->port()); }
  static std::string request(std::uint32_t chunk, std::vector<RemoteRange> ranges,
                             std::uint64_t lease = kLease) {
    std::string out;
    data_wire::encode_request({static_cast<std::uint16_t>(ranges.size()), 1, lease, chunk}, ranges, out);
    return out;
  }
  // The server must close the connection and go on serving others.
  void expect_closed(const std::string& bytes) {
    const Fd fd = open(next_index_++);
    ASSERT_EQ(verdict_, std::string(1, data_wire::kAccepted));
    write_all(fd.get(), bytes);
    EXPECT_TRUE(wait_for_close(fd.get()));
    EXPECT_EQ(kind_name(harness_->read_now(whole())), "ok");
  }
  std::string answer(const Fd& fd) {
    auto header = data_wire::decode_response_header(read_exactly(fd.get(), data_wire::kResponseHeaderSize));
    if (!header.ok()) return "garbage";
    const std::string body = read_exactly(fd.get(), header->length);
    if (header->status == 0) return "ok " + std::to_string(body.size());
    return std::string(to_string(data_wire::kind_of(header->status)));
  }

  std::unique_ptr<TransportHarness> harness_;
  std::vector<std::byte> to_;
  std::string verdict_;
  std::uint64_t next_index_ = 20;  // the harness' own reader uses the first few
};

TEST_F(TcpServerTest, ServesARawReader) {
  const Fd fd = open(next_index_++);
  EXPECT_EQ(verdict_, std::string(1, data_wire::kAccepted));
  write_all(fd.get(), request(0, {{kMemory, 5, 1000}, {kMemory, 9000, 1}}));
  EXPECT_EQ(answer(fd), "ok 1001");
}

TEST_F(TcpServerTest, ClosesOnGarbage) {
  expect_closed("GET / HTTP/1.1\r\nHost: example\r\n\r\n");
  expect_closed(std::string(5000, '\0'));
}

TEST_F(TcpServerTest, ClosesOnARequestOutOfBounds) {
  expect_closed(request(0, std::vector<RemoteRange>(65, {kMemory, 0, 1})));
  expect_closed(request(0, {{kMemory, 0, kMaxChunkSize + 1}}));
  expect_closed(request(0, {{kMemory, 0, 0}}));
  expect_closed(request(0, {}));
}

TEST_F(TcpServerTest, ClosesOnTooManyOutstandingRequests) {
  const Fd fd = open(next_index_++);
  harness_->source().shut_gate();
  std::string many;
  for (std::uint32_t i = 0; i < 2 * kMaxQueuedRequests; ++i) many += request(i, {{kMemory, 0, 1U << 20U}});
  write_all(fd.get(), many);
  harness_->source().wait_for_pins(1);
  harness_->source().open_gate();
  EXPECT_TRUE(wait_for_close(fd.get()));
  EXPECT_EQ(kind_name(harness_->read_now(whole())), "ok");
}

TEST_F(TcpServerTest, AnswersWhatTheLeaseDoesNotCover) {
  const Fd fd = open(next_index_++);
  write_all(fd.get(), request(0, {{kMemory, kPoolSize, 1}}));
  EXPECT_EQ(answer(fd), "protocol");
  write_all(fd.get(), request(1, {{kMemory, ~0ULL, 2}}));
  EXPECT_EQ(answer(fd), "protocol");
  write_all(fd.get(), request(2, {{kMemory + 1, 0, 1}}));
  EXPECT_EQ(answer(fd), "protocol");
  write_all(fd.get(), request(3, {{kMemory, 0, 1}}, kLease + 1));
  EXPECT_EQ(answer(fd), "lease_lost");
  write_all(fd.get(), request(4, {{kMemory, 0, 1}, {kMemory, kPoolSize, 1}}));
  EXPECT_EQ(answer(fd), "protocol");
  write_all(fd.get(), request(5, {{kMemory, 0, 1}}));
  EXPECT_EQ(answer(fd), "ok 1");
  harness_->close_writer()->wait();
  EXPECT_EQ(harness_->source().pinned(), 0);
}

TEST_F(TcpServerTest, AReaderThatDoesNotReadHoldsOneChunk) {
  const Fd fd = open(next_index_++);
  std::string many;
  for (std::uint32_t i = 0; i < 64; ++i) many += request(i, {{kMemory, 0, 16U << 20U}});
  write_all(fd.get(), many);
  harness_->source().wait_for_pins(1);
  // Others are served meanwhile.
  EXPECT_EQ(kind_name(harness_->read_now(whole())), "ok");
  EXPECT_LE(harness_->source().pinned(), 1 + 8) << "one for it, and what the other reads had in the air";
  harness_->close_writer()->wait();
  EXPECT_EQ(harness_->source().pinned(), 0) << "closing lets go of the memory";
}

TEST_F(TcpServerTest, AHalfSentRequestHoldsNothing) {
  const Fd fd = open(next_index_++);
  write_all(fd.get(), request(0, {{kMemory, 0, 10}}).substr(0, 40));
  EXPECT_EQ(kind_name(harness_->read_now(whole())), "ok");
  harness_->close_writer()->wait();
  EXPECT_TRUE(wait_for_close(fd.get()));
  EXPECT_EQ(harness_->source().pinned(), 0);
}

TEST_F(TcpServerTest, AnIndexIsGoodOnceAndConnectionsAreFew) {
  const Fd first = open(200);
  EXPECT_EQ(verdict_, std::string(1, data_wire::kAccepted));
  const Fd again = open(200);
  EXPECT_EQ(verdict_, std::string(1, data_wire::refusal(ErrorKind::protocol)));
  std::vector<Fd> more;
  for (std::uint64_t i = 1; i < kMaxServedConnections; ++i) {
    more.push_back(open(200 + i));
    ASSERT_EQ(verdict_, std::string(1, data_wire::kAccepted)) << i;
  }
  const Fd extra = open(300);
  EXPECT_EQ(verdict_, std::string(1, data_wire::refusal(ErrorKind::busy)));
}

TEST_F(TcpServerTest, ALeaseThatIsNotLiveIsLost) {
  ReadRequest read = whole();
  read.lease = kLease + 1;
  EXPECT_EQ(kind_name(harness_->read_now(read)), "lease_lost");
}

TEST_F(TcpServerTest, ALeaseThatEndsInMidReadIsLost) {
  for (const std::uint64_t chunks : {1U, 5U, 20U}) {
    harness_->source().grant(kLease);
    harness_->source().revoke_after(kLease, chunks);
    EXPECT_EQ(kind_name(harness_->read_now(whole())), "lease_lost") << chunks;
  }
}

TEST_F(TcpServerTest, AbortIsPromptWhileTheServerIsFrozen) {
  harness_->source().shut_gate();
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(whole(), outcome);
  harness_->source().wait_for_pins(1);
  harness_->abort(id)->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "cancelled");
  to_.assign(to_.size(), std::byte{7});
  harness_->source().open_gate();
  // The connections drain what was asked for, then serve again.
  std::vector<std::byte> next(kPoolSize);
  EXPECT_EQ(kind_name(harness_->read_now({kLease, {{kMemory, 0, kPoolSize}}, {{next.data(), kPoolSize}}})),
            "ok");
  for (const std::byte b : to_) ASSERT_EQ(b, std::byte{7});
}

TEST_F(TcpServerTest, ClosingTheReaderIsPromptWhileTheServerIsFrozen) {
  harness_->source().shut_gate();
  const Outcome outcome = make_outcome();
  harness_->read(whole(), outcome);
  harness_->source().wait_for_pins(1);
  harness_->close_reader()->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "peer_lost");
  to_.assign(to_.size(), std::byte{7});
  harness_->source().open_gate();
  harness_->close_writer()->wait();
  for (const std::byte b : to_) ASSERT_EQ(b, std::byte{7});
  EXPECT_EQ(harness_->source().pinned(), 0);
}

TEST_F(TcpServerTest, ClosingTheServerEndsTheRead) {
  harness_->source().shut_gate();
  const Outcome outcome = make_outcome();
  harness_->read(whole(), outcome);
  harness_->source().wait_for_pins(1);
  const auto closed = harness_->close_writer();
  harness_->source().open_gate();
  closed->wait();
  EXPECT_EQ(kind_name(outcome->wait()), "peer_lost");
}

TEST_F(TcpServerTest, PinsAreGoneAfterReads) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(kind_name(harness_->read_now(whole())), "ok");
  EXPECT_EQ(std::memcmp(to_.data(), harness_->pool().base(), kPoolSize), 0);
  harness_->close_writer()->wait();
  EXPECT_EQ(harness_->source().pinned(), 0);
}

}  // namespace
}  // namespace stagewire::testing_support
