// The messages of the verbs transport: golden bytes, round trips, and what garbage comes to. Pure functions.
#include "transport/verbs/verbs_wire.h"

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "../support.h"
#include "transport/verbs/verbs_options.h"

namespace stagewire::testing_support {
namespace {

using namespace verbs_wire;

std::string hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

Port some_port() {
  Port port;
  port.link_layer = 2;
  port.mtu = 5;
  port.lid = 0x1234;
  for (std::uint8_t i = 0; i < 16; ++i) port.gid[i] = static_cast<std::uint8_t>(0xA0 + i);
  return port;
}
const std::string kPortHex = "02053412a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";

std::vector<Message> examples() {
  return {Connect{0x0102030405060708, some_port(), 16, {{0x11, 0xABCDEF}, {0x12, 0x1}}},
          Connected{9, some_port(), 4, {{0xFFFFFF, 0}}},
          Refused{3, ErrorKind::busy, "full"},
          Drop{4, 0x17},
          Keys{{1, 0xFFFFFFFF}},
          Key{7, 0x7f0000001000, 10000, 4096, {1, 2, 3}},
          NoKey{8, ErrorKind::io, "no memory"},
          Renewed{some_port()}};
}

TEST(VerbsWire, GoldenBytes) {
  const std::vector<std::string> expected{
      "010807060504030201" + kPortHex + "10" + "02" + "11000000efcdab00" + "1200000001000000",
      "020900000000000000" + kPortHex + "04" + "01" + "ffffff0000000000",
      "030300000000000000"
      "13"
      "0400"
      "66756c6c",
      "040400000000000000"
      "17000000",
      "050200"
      "01000000"
      "ffffffff",
      "0607000000"
      "001000000"
      "07f0000"
      "1027000000000000"
      "0010000000000000"
      "0300"
      "01000000"
      "02000000"
      "03000000",
      "0708000000"
      "17"
      "0900"
      "6e6f206d656d6f7279",
      "08" + kPortHex};
  const std::vector<Message> messages = examples();
  ASSERT_EQ(messages.size(), expected.size());
  for (std::size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(hex(encode(messages[i])), expected[i]) << i;
  EXPECT_EQ(hex(encode(Hello{true, some_port()})), "0101" + kPortHex);
  EXPECT_EQ(hex(encode(Hello{})), "0100");
}

TEST(VerbsWire, ComesBackAsItWas) {
  for (const Message& message : examples()) {
    const auto decoded = decode(encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.error();
    EXPECT_TRUE(*decoded == message);
  }
  for (const Hello& hello : {Hello{}, Hello{true, some_port()}}) {
    const auto decoded = decode_hello(encode(hello));
    ASSERT_TRUE(decoded.ok());
    EXPECT_TRUE(*decoded == hello);
  }
}

TEST(VerbsWire, RefusesWhatIsCutShortOrTooLong) {
  for (const Message& message : examples()) {
    const std::string whole = encode(message);
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(decode(whole.substr(0, size)).ok()) << hex(whole.substr(0, size));
    EXPECT_FALSE(decode(whole + '\0').ok());
  }
  const std::string hello = encode(Hello{true, some_port()});
  for (std::size_t size = 0; size < hello.size(); ++size)
    EXPECT_FALSE(decode_hello(hello.substr(0, size)).ok());
  EXPECT_FALSE(decode_hello(hello + "x").ok());
}

TEST(VerbsWire, RefusesOtherVersions) {
  std::string hello = encode(Hello{});
  hello[0] = 2;
  EXPECT_EQ(decode_hello(hello).error().kind(), ErrorKind::version_mismatch);
}

TEST(VerbsWire, RefusesValuesOutOfBounds) {
  const auto refused = [](const Message& message) { return !decode(encode(message)).ok(); };
  Port port = some_port();
  port.link_layer = 3;
  EXPECT_TRUE(refused(Connect{1, port, 1, {{1, 1}}}));
  port = some_port();
  for (const std::uint8_t mtu : std::vector<std::uint8_t>{0, 6, 255}) {
    port.mtu = mtu;
    EXPECT_TRUE(refused(Connect{1, port, 1, {{1, 1}}}));
  }
  EXPECT_TRUE(refused(Connect{1, some_port(), 1, {}}));
  EXPECT_TRUE(refused(Connect{1, some_port(), 1, std::vector<Queue>(kMaxVerbsQueuesPerPeer + 1)}));
  EXPECT_TRUE(refused(Connect{1, some_port(), 1, {{0x1000000, 1}}}));
  EXPECT_TRUE(refused(Connect{1, some_port(), 1, {{1, 0x1000000}}}));
  EXPECT_TRUE(refused(Keys{}));
  EXPECT_TRUE(refused(Keys{std::vector<std::uint32_t>(kMaxVerbsMemories + 1)}));
  EXPECT_TRUE(refused(Key{1, 0, 0, 4096, {1}}));                // no bytes
  EXPECT_TRUE(refused(Key{1, 0, 4096, 0, {1}}));                // pieces of none
  EXPECT_TRUE(refused(Key{1, 0, 4097, 4096, {1}}));             // too few keys
  EXPECT_TRUE(refused(Key{1, 0, 4096, 4096, {1, 2}}));          // too many
  EXPECT_TRUE(refused(Key{1, ~0ULL - 4000, 4096, 4096, {1}}));  // ends beyond the address space
  EXPECT_TRUE(refused(Key{1, 0, 8ULL << 30U, 1, std::vector<std::uint32_t>(kMaxVerbsPieces + 1)}));
  std::string refusal = encode(Message(Refused{1, ErrorKind::internal, "x"}));
  refusal[9] = static_cast<char>(static_cast<int>(ErrorKind::internal) + 1);
  EXPECT_FALSE(decode(refusal).ok());
}

TEST(VerbsWire, RefusesTextsThatAreNotPlain) {
  for (const char* text : {"a\nb", "\x1b[31m", "\x7f", "\xff", "\xc3"})
    EXPECT_FALSE(decode(encode(Message(Refused{1, ErrorKind::busy, text}))).ok());
  EXPECT_TRUE(decode(encode(Message(Refused{1, ErrorKind::busy, "a → b"}))).ok());
}

TEST(VerbsWire, CutsLongTextsBetweenCharacters) {
  std::string arrows = "x";
  while (arrows.size() < 2 * kMaxText) arrows += "→";
  const auto cut = decode(encode(Message(Refused{1, ErrorKind::busy, arrows})));
  ASSERT_TRUE(cut.ok()) << cut.error();
  EXPECT_EQ(std::get<Refused>(*cut).text, arrows.substr(0, 511 / 3 * 3 + 1));
}

TEST(VerbsWire, CutsLongTexts) {
  const auto decoded = decode(encode(Message(Refused{1, ErrorKind::busy, std::string(5000, 'x')})));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Refused>(*decoded).text.size(), kMaxText);
}

TEST(VerbsWire, SurvivesGarbage) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 80U, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (!bytes.empty()) bytes[0] = static_cast<char>(random() % 9U);
    const auto decoded = decode(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(encode(*decoded), bytes);  // nothing is read two ways
    }
    static_cast<void>(decode_hello(bytes));
  }
  // Every byte of good messages, changed in turn.
  for (const Message& message : examples()) {
    const std::string whole = encode(message);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const int change : {1, 0x80, 0xFF}) {
        std::string bytes = whole;
        bytes[i] = static_cast<char>(bytes[i] ^ change);
        const auto decoded = decode(bytes);
        if (!decoded.ok()) {
          EXPECT_EQ(decoded.error().kind(), ErrorKind::protocol);
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagewire::testing_support
