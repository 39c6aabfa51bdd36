// The bytes of data connections: golden bytes, round trips, and what must be refused. Also the tcp hello, the
// dial order, the plan of a read and the indices of data connections.
#include "transport/tcp/data_wire.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "support.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/tcp_options.h"
#include "transport/tcp/tcp_read.h"

namespace stagewire::testing_support {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

std::string one_request() {
  std::string out;
  const RemoteRange range{3, 0x1122334455667788ULL, 0x1000};
  data_wire::encode_request({1, 5, 6, 9}, {&range, 1}, out);
  return out;
}

TEST(DataWire, GoldenBytes) {
  EXPECT_EQ(hex(one_request()),
            "73777271"
            "0100"
            "0000"
            "0500000000000000"
            "0600000000000000"
            "09000000"
            "00000000"
            "03000000"
            "00000000"
            "8877665544332211"
            "0010000000000000");
  EXPECT_EQ(hex(data_wire::encode_response({16, 5, 9, 0x2000})),
            "73777273"
            "1000"
            "0000"
            "0500000000000000"
            "09000000"
            "00000000"
            "0020000000000000");
}

TEST(DataWire, RoundTrips) {
  const std::string bytes = one_request();
  auto header = data_wire::decode_request_header(std::string_view(bytes).substr(0, 32));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->read, 5U);
  EXPECT_EQ(header->lease, 6U);
  EXPECT_EQ(header->chunk, 9U);
  EXPECT_EQ(header->ranges, 1U);
  std::vector<RemoteRange> ranges;
  ASSERT_TRUE(data_wire::decode_ranges(std::string_view(bytes).substr(32), ranges).ok());
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0], (RemoteRange{3, 0x1122334455667788ULL, 0x1000}));
  for (unsigned kind = 0; kind <= static_cast<unsigned>(ErrorKind::internal); ++kind) {
    const auto status = data_wire::status_of(static_cast<ErrorKind>(kind));
    auto response = data_wire::decode_response_header(data_wire::encode_response({status, 1, 2, 3}));
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(data_wire::kind_of(response->status), static_cast<ErrorKind>(kind));
  }
}

TEST(DataWire, EveryBitOfAHeaderThatIsNotAFieldIsChecked) {
  const std::string good = one_request().substr(0, 32);
  for (const std::size_t at : {0U, 1U, 2U, 3U, 5U, 6U, 7U, 28U, 29U, 30U, 31U}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    EXPECT_FALSE(data_wire::decode_request_header(bad).ok()) << at;
  }
  std::string none = good;
  none[4] = 0;
  EXPECT_FALSE(data_wire::decode_request_header(none).ok());
  none[4] = 65;
  EXPECT_FALSE(data_wire::decode_request_header(none).ok());
  EXPECT_FALSE(data_wire::decode_request_header(good.substr(1)).ok());
  const std::string response = data_wire::encode_response({0, 1, 2, 3});
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 20U, 21U, 22U, 23U}) {
    std::string bad = response;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    EXPECT_FALSE(data_wire::decode_response_header(bad).ok()) << at;
  }
  EXPECT_FALSE(data_wire::decode_response_header(data_wire::encode_response({1, 1, 2, 513})).ok());
}

TEST(DataWire, RangesAreBoundedWithoutOverflow) {
  std::vector<RemoteRange> out;
  const auto check = [&](std::vector<RemoteRange> ranges) {
    std::string bytes;
    data_wire::encode_request({static_cast<std::uint16_t>(ranges.size()), 1, 1, 1}, ranges, bytes);
    return data_wire::decode_ranges(std::string_view(bytes).substr(32), out).ok();
  };
  EXPECT_TRUE(check({{1, 0, kMaxChunkSize}}));
  EXPECT_FALSE(check({{1, 0, kMaxChunkSize + 1}}));
  EXPECT_FALSE(check({{1, 0, kMaxChunkSize}, {1, 0, 1}}));
  EXPECT_FALSE(check({{1, 0, 1}, {1, 0, std::numeric_limits<std::uint64_t>::max()}}));
  EXPECT_FALSE(check({{1, 0, 0}}));
}

TEST(TcpHello, RoundTripsAndRefusesGarbage) {
  const std::vector<TcpEndpoint> endpoints{{"", 7000}, {"10.1.2.3", 1}, {"fe80::1", 65535}};
  const std::string hello = encode_endpoints(endpoints);
  auto decoded = decode_endpoints(hello);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, endpoints);
  for (std::size_t size = 0; size < hello.size(); ++size) {
    EXPECT_FALSE(decode_endpoints(std::string_view(hello).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_endpoints(hello + "x").ok());
  EXPECT_FALSE(decode_endpoints(encode_endpoints({{"example.org", 1}})).ok()) << "names are never resolved";
  EXPECT_FALSE(decode_endpoints(encode_endpoints({{"10.0.0.1", 0}})).ok());
  EXPECT_FALSE(decode_endpoints(std::string("\x01\x11", 2)).ok());
  EXPECT_TRUE(decode_endpoints(encode_endpoints({})).ok());
}

std::vector<std::string> order(const std::vector<TcpEndpoint>& endpoints, const std::string& ip,
                               bool same_host) {
  std::vector<std::string> texts;
  for (const SocketAddress& address : dial_order(endpoints, ip, same_host)) texts.push_back(address.text);
  return texts;
}

TEST(TcpDialOrder, PrefersTheAddressThePeerWasSeenAt) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(order({{"10.0.0.9", 1}, {"", 2}}, "10.0.0.1", false), (Texts{"10.0.0.1:2", "10.0.0.9:1"}));
  EXPECT_EQ(order({{"127.0.0.1", 1}}, "10.0.0.1", false), Texts{}) << "our own loopback is not the peer's";
  EXPECT_EQ(order({{"127.0.0.1", 1}}, "", true), (Texts{"127.0.0.1:1"}));
  EXPECT_EQ(order({{"", 1}}, "", true), (Texts{"127.0.0.1:1"}));
  EXPECT_EQ(order({{"", 1}}, "", false), Texts{});
  EXPECT_EQ(order({{"", 1}}, "fd00::1", false), (Texts{"[fd00::1]:1"}));
  EXPECT_EQ(order({{"", 1}, {"10.0.0.1", 1}}, "10.0.0.1", false), (Texts{"10.0.0.1:1"}));
}

TEST(TcpPlan, CoversEveryByteOnceWithinTheBounds) {
  std::vector<std::byte> memory(1U << 20U);
  for (const std::uint64_t chunk_size : {4096ULL, 100'000ULL, 1ULL << 20U}) {
    ReadRequest request;
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::uint64_t length = (i * 37) % 1500;
      request.from.push_back({1, i * 2000, length});
      total += length;
    }
    request.from.push_back({1, 500 * 2000, memory.size() - total});
    request.to.push_back({memory.data(), 12'345});
    request.to.push_back({nullptr, 0});
    request.to.push_back({memory.data() + 50'000, memory.size() - 12'345});
    auto read = plan_read(std::move(request), chunk_size);
    ASSERT_TRUE(read.ok());
    std::uint64_t covered = 0;
    std::vector<RemoteRange> ranges;
    RemoteRange last;
    for (const Chunk& chunk : read->chunks) {
      ASSERT_GT(chunk.length, 0U);
      ASSERT_LE(chunk.length, chunk_size);
      chunk_ranges(*read, chunk, ranges);
      ASSERT_LE(ranges.size(), kMaxChunkRanges);
      std::uint64_t length = 0;
      for (const RemoteRange& range : ranges) {
        ASSERT_TRUE(range.offset >= last.offset + last.length) << "in order, nothing twice";
        last = range;
        length += range.length;
      }
      ASSERT_EQ(length, chunk.length);
      const std::uint64_t first = covered < 12'345 ? covered : covered - 12'345;
      ASSERT_EQ(chunk.to_index, covered < 12'345 ? 0U : 1U);
      ASSERT_EQ(chunk.to_offset, first);
      covered += length;
    }
    EXPECT_EQ(covered, memory.size());
  }
}

TEST(TcpPlan, MergesNeighbours) {
  std::vector<std::byte> memory(3000);
  ReadRequest request{1, {{1, 0, 1000}, {1, 1000, 1000}, {2, 2000, 1000}}, {}};
  request.to = {{memory.data(), 1000}, {memory.data() + 1000, 2000}};
  auto read = plan_read(std::move(request), 1U << 20U);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->from.size(), 2U);
  EXPECT_EQ(read->to.size(), 1U);
  EXPECT_EQ(read->chunks.size(), 1U);
}

TEST(TcpIndices, AreGoodOnce) {
  UsedIndices used;
  EXPECT_TRUE(used.use(0));
  EXPECT_FALSE(used.use(0));
  EXPECT_TRUE(used.use(3));
  EXPECT_TRUE(used.use(1));
  EXPECT_FALSE(used.use(1));
  EXPECT_FALSE(used.use(3));
  EXPECT_TRUE(used.use(66));
  EXPECT_FALSE(used.use(2)) << "too old to tell";
  EXPECT_TRUE(used.use(4));
  EXPECT_TRUE(used.use(1'000'000'000'000));
  EXPECT_FALSE(used.use(66));
  EXPECT_FALSE(used.use(std::numeric_limits<std::uint64_t>::max()));
}

}  // namespace
}  // namespace stagewire::testing_support
