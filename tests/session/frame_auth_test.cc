// Authentication of frames and of data connections' openings, and keys derived from the session key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sodium.h>
#include <string>
#include <utility>

#include "session/handshake.h"
#include "session/wire_examples.h"

namespace stagewire {
namespace {

using ::testing::HasSubstr;

SessionKey key_of(int salt) {
  SessionKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(salt + static_cast<int>(i));
  return key;
}

/// Frame and tag apart.
struct Sealed {
  std::string frame;
  std::string tag;
};
Sealed sealed(FrameAuth& auth, const std::string& frame) {
  std::string bytes = frame;
  auth.seal(bytes);
  EXPECT_EQ(bytes.size(), frame.size() + wire::kTagSize);
  EXPECT_EQ(bytes.substr(0, frame.size()), frame);
  return {frame, bytes.substr(frame.size())};
}
bool check(FrameAuth& auth, const Sealed& message) {
  return auth.check(message.frame, message.tag);
}

TEST(FrameAuth, FramesInOrderAreGood) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  for (const wire::Frame& frame : wire::example_frames()) {
    EXPECT_TRUE(check(receiver, sealed(sender, wire::encoded(frame))));
  }
  EXPECT_TRUE(check(receiver, sealed(sender, "")));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(check(receiver, sealed(sender, "same")));
}

// The tag is the AEAD's, whether the frame's key was made ahead or not.
TEST(FrameAuth, TheTagIsThatOfChaCha20Poly1305) {
  FrameAuth sender(key_of(1), true);
  const auto key = derive_key(key_of(1), "stagewire frames", 0);
  for (std::uint64_t i = 0; i < 300; ++i) {
    if (i % 7 == 0) sender.prepare();
    std::string frame;
    for (std::uint64_t j = 0; j < i; ++j) frame += static_cast<char>(i * 31 + j * 17);
    std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce{};
    nonce[0] = static_cast<unsigned char>(i & 0xFFU);
    nonce[1] = static_cast<unsigned char>(i >> 8U);
    std::string expected(wire::kTagSize, '\0');
    unsigned char nothing = 0;
    ASSERT_EQ(crypto_aead_chacha20poly1305_ietf_encrypt_detached(
                  &nothing, reinterpret_cast<unsigned char*>(expected.data()), nullptr, &nothing, 0,
                  reinterpret_cast<const unsigned char*>(frame.data()), frame.size(), nullptr, nonce.data(),
                  reinterpret_cast<const unsigned char*>(key.data())),
              0);
    EXPECT_EQ(sealed(sender, frame).tag, expected) << i;
  }
}

TEST(FrameAuth, SealsTheEndOfABuffer) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  std::string buffer = "one";
  sender.seal(buffer);
  const std::size_t second = buffer.size();
  buffer += "second";
  sender.seal(buffer, second);
  EXPECT_TRUE(receiver.check(buffer.substr(0, 3), buffer.substr(3, 16)));
  EXPECT_TRUE(receiver.check(buffer.substr(second, 6), buffer.substr(second + 6)));
}

TEST(FrameAuth, ADroppedFrameIsDetected) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  sealed(sender, "dropped");
  EXPECT_FALSE(check(receiver, sealed(sender, "next")));
}

TEST(FrameAuth, ARepeatedFrameIsDetected) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  const Sealed message = sealed(sender, "frame");
  EXPECT_TRUE(check(receiver, message));
  EXPECT_FALSE(check(receiver, message));
}

TEST(FrameAuth, SwappedFramesAreDetected) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  const Sealed first = sealed(sender, "frame");
  const Sealed second = sealed(sender, "frame");
  EXPECT_NE(first.tag, second.tag);
  EXPECT_FALSE(check(receiver, second));
  EXPECT_FALSE(check(receiver, first));  // too late: the stream is broken for good
}

TEST(FrameAuth, EveryChangedBitIsDetected) {
  const std::string frame = wire::encoded(wire::example_claim());
  FrameAuth sender(key_of(1), true);
  const Sealed message = sealed(sender, frame);
  for (std::size_t i = 0; i < 8 * (frame.size() + wire::kTagSize); ++i) {
    Sealed changed = message;
    std::string& part = i < 8 * frame.size() ? changed.frame : changed.tag;
    const std::size_t bit = i < 8 * frame.size() ? i : i - 8 * frame.size();
    part[bit / 8] = static_cast<char>(part[bit / 8] ^ (1 << (bit % 8)));
    FrameAuth receiver(key_of(1), true);
    EXPECT_FALSE(check(receiver, changed)) << "bit " << i;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{15}, std::size_t{17}}) {
    FrameAuth receiver(key_of(1), true);
    std::string tag = message.tag;
    tag.resize(size);
    EXPECT_FALSE(receiver.check(frame, tag));
  }
  FrameAuth longer(key_of(1), true);
  EXPECT_FALSE(longer.check(frame + std::string(1, '\0'), message.tag));
  FrameAuth shorter(key_of(1), true);
  EXPECT_FALSE(shorter.check(frame.substr(0, frame.size() - 1), message.tag));
}

TEST(FrameAuth, NothingIsGoodAfterAFailure) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  const Sealed first = sealed(sender, "a");
  EXPECT_FALSE(receiver.check("b", first.tag));
  EXPECT_FALSE(check(receiver, sealed(sender, "c")));
}

TEST(FrameAuth, DirectionsAndSessionsHaveTheirOwnKeys) {
  FrameAuth sender(key_of(1), true);
  const Sealed message = sealed(sender, "frame");
  FrameAuth other_direction(key_of(1), false);
  EXPECT_FALSE(check(other_direction, message));
  FrameAuth other_session(key_of(2), true);
  EXPECT_FALSE(check(other_session, message));
}

TEST(FrameAuth, MovesWithItsCounter) {
  FrameAuth sender(key_of(1), true);
  FrameAuth receiver(key_of(1), true);
  EXPECT_TRUE(check(receiver, sealed(sender, "a")));
  FrameAuth moved_sender(std::move(sender));
  FrameAuth moved_receiver(key_of(9), false);
  moved_receiver = std::move(receiver);
  EXPECT_TRUE(check(moved_receiver, sealed(moved_sender, "b")));
}

TEST(DeriveKey, IsTheSameAtBothEndsAndDifferentForEverythingElse) {
  EXPECT_EQ(derive_key(key_of(1), "label", 7), derive_key(key_of(1), "label", 7));
  const std::set<std::array<std::byte, 32>> keys = {
      derive_key(key_of(1), "label", 0),
      derive_key(key_of(1), "label", 1),
      derive_key(key_of(1), "label", std::uint64_t{1} << 63U),
      derive_key(key_of(1), "labe", 0),
      derive_key(key_of(1), "", 0),
      derive_key(key_of(1), std::string_view("label\0", 6), 0),
      derive_key(key_of(2), "label", 0),
      key_of(1),
  };
  EXPECT_EQ(keys.size(), 8U);
}

SessionTag tag_of(int salt) {
  SessionTag tag;
  for (std::size_t i = 0; i < tag.size(); ++i) tag[i] = static_cast<std::byte>(salt + static_cast<int>(i));
  return tag;
}

TEST(DataHello, IsVerifiedUnderItsSessionsKey) {
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    const std::string bytes = make_data_hello(tag_of(3), index, key_of(1));
    ASSERT_EQ(bytes.size(), kHelloSize);
    EXPECT_EQ(peek_purpose(bytes).value(), HelloPurpose::data);
    const Result<DataHello> hello = parse_data_hello(bytes);
    ASSERT_TRUE(hello.ok()) << hello.error();
    EXPECT_EQ(hello->session, tag_of(3));
    EXPECT_EQ(hello->index, index);
    EXPECT_TRUE(verify_data_hello(*hello, key_of(1)));
    EXPECT_FALSE(verify_data_hello(*hello, key_of(2)));
  }
}

TEST(DataHello, EveryChangedBitIsDetected) {
  const std::string bytes = make_data_hello(tag_of(3), 5, key_of(1));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    const Result<DataHello> hello = parse_data_hello(changed);
    if (!hello.ok()) {
      EXPECT_EQ(hello.error().kind(), ErrorKind::protocol);
    } else {
      EXPECT_FALSE(verify_data_hello(*hello, key_of(1))) << "bit " << bit;
    }
  }
}

TEST(DataHello, OtherInputsAreProtocolErrors) {
  const std::string good = make_data_hello(tag_of(3), 5, key_of(1));
  HandshakeConfig config;
  config.self = NodeId::random();
  config.mode = AuthMode::insecure;
  for (const std::string& bytes : {std::string(), good.substr(0, kHelloSize - 1), good + "x",
                                   InitiatorHandshake(config).hello(), std::string(kHelloSize, '\0')}) {
    const Result<DataHello> hello = parse_data_hello(bytes);
    ASSERT_FALSE(hello.ok());
    EXPECT_EQ(hello.error().kind(), ErrorKind::protocol);
  }
  EXPECT_THAT(parse_data_hello(InitiatorHandshake(config).hello()).error().message(),
              HasSubstr("expected a data connection"));
}

TEST(DataHello, CannotServeAsAFrameTagOrOtherKey) {
  // The MAC key is derived under its own label: it equals none that other code derives.
  const DataHello hello = parse_data_hello(make_data_hello(tag_of(3), 0, key_of(1))).value();
  EXPECT_NE(hello.mac, derive_key(key_of(1), "stagewire data hello", 0));
}

TEST(SessionKeyMemory, IsWiped) {
  SessionKey key = key_of(1);
  wipe(key);
  EXPECT_EQ(key, SessionKey{});
}

}  // namespace
}  // namespace stagewire
