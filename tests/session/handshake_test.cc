// The handshake, run in memory: success in every mode, versions, and input that is not a handshake. Cheating
// is in handshake_auth_test.cc.
#include "session/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "session/handshake_support.h"
#include "session/hello.h"

namespace stagewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Handshake, SucceedsInEveryMode) {
  for (const AuthMode mode : kModes) {
    const HandshakeConfig a = config(mode);
    const HandshakeConfig b = config(mode);
    const Attempt out = run(a, b);
    ASSERT_TRUE(succeeded(out)) << first_error(out);
    const HandshakeResult& responder = out.end->value();
    EXPECT_EQ(out.initiator.peer, b.self);
    EXPECT_EQ(responder.peer, a.self);
    EXPECT_EQ(out.initiator.version, 1);
    EXPECT_EQ(responder.version, 1);
    EXPECT_EQ(out.initiator.key, responder.key);
    EXPECT_EQ(out.initiator.session, responder.session);
    EXPECT_NE(responder.key, SessionKey{});
    EXPECT_NE(responder.session, SessionTag{});
  }
}

TEST(Handshake, TheSizesAreFixed) {
  InitiatorHandshake initiator(config());
  ResponderHandshake responder(config());
  EXPECT_EQ(initiator.hello().size(), kHelloSize);
  EXPECT_EQ(initiator.hello(), initiator.hello());
  EXPECT_EQ(peek_purpose(initiator.hello()).value(), HelloPurpose::control);
  std::string refusal;
  const std::string reply = responder.on_hello(initiator.hello(), refusal).value();
  EXPECT_EQ(reply.size(), kHelloSize + kProofSize);
  EXPECT_TRUE(refusal.empty());
  EXPECT_EQ(initiator.on_reply(reply)->size(), kProofSize);
}

TEST(Handshake, EveryRunHasItsOwnKeyAndTag) {
  const HandshakeConfig a = config();
  const HandshakeConfig b = config();
  std::set<SessionKey> keys;
  std::set<SessionTag> tags;
  for (int i = 0; i < 20; ++i) {
    const Attempt out = run(a, b);
    ASSERT_TRUE(succeeded(out));
    keys.insert(out.initiator.key);
    tags.insert(out.initiator.session);
  }
  EXPECT_EQ(keys.size(), 20U);
  EXPECT_EQ(tags.size(), 20U);
}

TEST(Handshake, CanBeMovedInTheMiddle) {
  InitiatorHandshake first(config());
  ResponderHandshake second(config());
  InitiatorHandshake initiator(config());
  const std::string hello = first.hello();
  initiator = std::move(first);
  std::string refusal;
  const std::string reply = second.on_hello(hello, refusal).value();
  ResponderHandshake responder(std::move(second));
  const Result<std::string> proof = initiator.on_reply(reply);
  ASSERT_TRUE(proof.ok()) << proof.error();
  const InitiatorHandshake moved(std::move(initiator));
  const Result<HandshakeResult> end = responder.on_proof(*proof);
  ASSERT_TRUE(end.ok()) << end.error();
  EXPECT_EQ(end->key, moved.result().key);
}

TEST(Handshake, StepsOutOfOrderAreErrors) {
  InitiatorHandshake initiator(config());
  ResponderHandshake responder(config());
  EXPECT_EQ(responder.on_proof(std::string(kProofSize, 'x')).error().kind(), ErrorKind::internal);
  std::string refusal;
  EXPECT_EQ(responder.on_hello(initiator.hello(), refusal).error().kind(), ErrorKind::internal);

  ResponderHandshake fresh(config());
  const std::string reply = fresh.on_hello(initiator.hello(), refusal).value();
  EXPECT_EQ(fresh.on_hello(initiator.hello(), refusal).error().kind(), ErrorKind::internal);
  const std::string proof = initiator.on_reply(reply).value();
  EXPECT_EQ(initiator.on_reply(reply).error().kind(), ErrorKind::internal);
  EXPECT_TRUE(fresh.on_proof(proof).ok());
  EXPECT_EQ(fresh.on_proof(proof).error().kind(), ErrorKind::internal);
}

TEST(Handshake, AProofCanBeTriedOnce) {
  InitiatorHandshake initiator(config());
  ResponderHandshake responder(config());
  std::string refusal;
  const std::string reply = responder.on_hello(initiator.hello(), refusal).value();
  const std::string proof = initiator.on_reply(reply).value();
  EXPECT_EQ(responder.on_proof(std::string(kProofSize, 'x')).error().kind(), ErrorKind::auth_failed);
  EXPECT_FALSE(responder.on_proof(proof).ok());
}

TEST(HandshakeVersions, TheHighestCommonOneIsChosen) {
  using Range = VersionRange;
  EXPECT_EQ(negotiate_version(Range{1, 1}, Range{1, 1}), 1);
  EXPECT_EQ(negotiate_version(Range{1, 3}, Range{2, 5}), 3);
  EXPECT_EQ(negotiate_version(Range{2, 5}, Range{1, 3}), 3);
  EXPECT_EQ(negotiate_version(Range{1, 9}, Range{4, 4}), 4);
  EXPECT_EQ(negotiate_version(Range{1, 0xFFFF}, Range{1, 0xFFFF}), 0xFFFF);
  EXPECT_EQ(negotiate_version(Range{1, 2}, Range{3, 4}), std::nullopt);
  EXPECT_EQ(negotiate_version(Range{3, 4}, Range{1, 2}), std::nullopt);

  for (const auto& [a, b, chosen] :
       {std::tuple{Range{1, 3}, Range{2, 5}, 3}, std::tuple{Range{2, 5}, Range{1, 3}, 3},
        std::tuple{Range{1, 0xFFFF}, Range{300, 300}, 300}}) {
    const Attempt out = run(config(AuthMode::secret, a), config(AuthMode::secret, b));
    ASSERT_TRUE(succeeded(out)) << first_error(out);
    EXPECT_EQ(out.initiator.version, chosen);
    EXPECT_EQ(out.end->value().version, chosen);
  }
}

TEST(HandshakeVersions, NoneInCommonIsSaidAtBothEndsWithBothRanges) {
  const Attempt out = run(config(AuthMode::secret, {1, 2}), config(AuthMode::secret, {3, 4}));
  ASSERT_TRUE(out.reply && !out.reply->ok());
  ASSERT_TRUE(out.proof && !out.proof->ok());
  EXPECT_EQ(out.refusal.size(), kHelloSize + kProofSize);
  EXPECT_EQ(out.reply->error().kind(), ErrorKind::version_mismatch);
  EXPECT_THAT(out.reply->error().message(),
              AllOf(HasSubstr("this node speaks protocol version 3 to 4"), HasSubstr("the peer 1 to 2")));
  EXPECT_EQ(out.proof->error().kind(), ErrorKind::version_mismatch);
  EXPECT_THAT(out.proof->error().message(),
              AllOf(HasSubstr("this node speaks protocol version 1 to 2"), HasSubstr("the peer 3 to 4")));
}

TEST(HandshakeVersions, AHelloOfAnotherVersionNeedNotLookLikeOurs) {
  // A later version may use the bytes that are reserved today; it must still be told the versions.
  InitiatorHandshake later(config(AuthMode::secret, {7, 9}));
  std::string hello = later.hello();
  hello[kRoleAt] = 99;
  hello[127] = 1;
  ResponderHandshake responder(config());
  std::string refusal;
  EXPECT_EQ(responder.on_hello(hello, refusal).error().kind(), ErrorKind::version_mismatch);
  EXPECT_EQ(later.on_reply(refusal).error().kind(), ErrorKind::version_mismatch);
}

TEST(HandshakeVersions, ADowngradeIsDetected) {
  // Both speak 1 to 2; the one in the middle takes 2 out of the initiator's offer.
  const Attempt out = run(
      config(AuthMode::secret, {1, 2}), config(AuthMode::secret, {1, 2}),
      [](std::string bytes) {
        bytes[kMaxAt] = 1;
        return bytes;
      },
      untouched, untouched);
  ASSERT_TRUE(out.proof && !out.proof->ok());
  EXPECT_EQ(out.proof->error().kind(), ErrorKind::protocol);
  EXPECT_THAT(out.proof->error().message(), HasSubstr("chose version 1; expected 2"));
}

TEST(HandshakeVersions, EmptyAndZeroRangesAreErrors) {
  for (const auto& range : {std::pair{0, 1}, std::pair{0, 0}, std::pair{2, 1}}) {
    const Attempt out = run(
        config(), config(),
        [range](std::string bytes) {
          bytes[kMinAt] = static_cast<char>(range.first);
          bytes[kMaxAt] = static_cast<char>(range.second);
          return bytes;
        },
        untouched, untouched);
    EXPECT_EQ(first_error(out).kind(), ErrorKind::protocol);
    EXPECT_TRUE(out.refusal.empty());
  }
}

TEST(HandshakeInput, WrongSizesAreProtocolErrors) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kHelloSize - 1, kHelloSize + 1}) {
    ResponderHandshake responder(config());
    std::string hello = InitiatorHandshake(config()).hello();
    hello.resize(size);
    std::string refusal = "stale";
    EXPECT_EQ(responder.on_hello(hello, refusal).error().kind(), ErrorKind::protocol) << size;
    EXPECT_TRUE(refusal.empty());
  }
  for (const std::size_t size :
       {std::size_t{0}, kHelloSize, kHelloSize + kProofSize - 1, kHelloSize + kProofSize + 1}) {
    InitiatorHandshake initiator(config());
    ResponderHandshake responder(config());
    std::string refusal;
    std::string reply = responder.on_hello(initiator.hello(), refusal).value();
    reply.resize(size);
    EXPECT_EQ(initiator.on_reply(reply).error().kind(), ErrorKind::protocol) << size;
  }
  for (const std::size_t size : {std::size_t{0}, kProofSize - 1, kProofSize + 1}) {
    const Attempt out = run(config(), config(), untouched, untouched, [size](std::string bytes) {
      bytes.resize(size);
      return bytes;
    });
    EXPECT_EQ(first_error(out).kind(), ErrorKind::auth_failed) << size;
  }
}

TEST(HandshakeInput, FieldsOutOfRangeAreProtocolErrors) {
  const std::pair<std::size_t, int> changes[] = {{kModeAt, 0}, {kModeAt, 4}, {kRoleAt, 0},   {kRoleAt, 2},
                                                 {kRoleAt, 3}, {kRoleAt, 4}, {kReasonAt, 1}, {kChosenAt, 1},
                                                 {14, 1},      {15, 1},      {96, 1},        {127, 1},
                                                 {4, 0},       {4, 2},       {4, 3}};
  for (const auto& change : changes) {
    const Attempt out = run(
        config(), config(),
        [change](std::string bytes) {
          bytes[change.first] = static_cast<char>(change.second);
          return bytes;
        },
        untouched, untouched);
    EXPECT_EQ(first_error(out).kind(), ErrorKind::protocol) << change.first << " = " << change.second;
    EXPECT_TRUE(out.refusal.empty());
  }
}

TEST(HandshakeInput, ARefusalWithoutAVisibleReasonIsAnError) {
  for (const RefusalReason reason : {RefusalReason::version, RefusalReason::auth_mode}) {
    InitiatorHandshake initiator(config());
    Hello hello;
    hello.role = HelloRole::refusal;
    hello.reason = reason;
    hello.node = NodeId::random();
    const Result<std::string> out = initiator.on_reply(write_hello(hello) + std::string(kProofSize, '\0'));
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().kind(), ErrorKind::protocol);
  }
}

TEST(HandshakeInput, WhatIsNotStagewireIsNamed) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, std::string_view> inputs[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"},
      {"POST /v1 HTTP/1.1\r\n", "an HTTP request"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 request"},
      {"HTTP/1.1 400 Bad Request\r\n", "an HTTP response"},
      {"\x16\x03\x01\x02\x00\x01"sv, "a TLS client hello"},
      {"\x15\x03\x01\x00\x02"sv, "a TLS alert"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "an SSH greeting"},
      {"\xFF\0\0\0\0\0\0\0\1\x7F\3"sv, "a ZeroMQ greeting"},
      {"220 mail ESMTP\r\n", "a mail or FTP greeting"},
      {"\0\0\0\0\0\0"sv, "6 zero bytes"},
      {"", "nothing"},
      {"\x01\x02", "unknown bytes (01 02)"},
      {"\x80hello world", "unknown bytes (80 68 65 6c 6c 6f 20 77 …)"},
  };
  for (const auto& [bytes, words] : inputs) {
    EXPECT_EQ(describe_foreign_bytes(bytes), words);
    std::string padded(bytes);
    const Result<HelloPurpose> short_one = peek_purpose(bytes);
    ASSERT_FALSE(short_one.ok());
    EXPECT_EQ(short_one.error().kind(), ErrorKind::protocol);
    EXPECT_THAT(short_one.error().message(), HasSubstr(std::string(words)));
    if (bytes.empty()) continue;
    padded.resize(kHelloSize, bytes[0] == '\0' ? '\0' : 'x');
    EXPECT_EQ(peek_purpose(padded).error().kind(), ErrorKind::protocol);
    // A client that dialled a server of another kind says the same.
    InitiatorHandshake initiator(config());
    padded.resize(kHelloSize + kProofSize, 'x');
    EXPECT_EQ(initiator.on_reply(padded).error().kind(), ErrorKind::protocol);
  }
  EXPECT_THAT(peek_purpose("STGW").error().message(), HasSubstr("4 of the 128 bytes of a hello"));
  EXPECT_THAT(peek_purpose("ST").error().message(), HasSubstr("2 of the 128 bytes"));
  EXPECT_THAT(peek_purpose("STGX").error().message(), HasSubstr("unknown bytes (53 54 47 58)"));
  EXPECT_THAT(peek_purpose("STGW" + std::string(124, '\7')).error().message(), HasSubstr("has purpose 7"));
}

TEST(HandshakeInput, RandomBytesNeverSucceed) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    ResponderHandshake responder(config());
    InitiatorHandshake initiator(config());
    std::string hello = initiator.hello();
    for (int i = 0; i < 1 + round % 8; ++i) hello[random() % hello.size()] = static_cast<char>(random());
    std::string refusal;
    const Result<std::string> reply = responder.on_hello(hello, refusal);
    if (reply.ok() && hello != initiator.hello()) {
      EXPECT_FALSE(initiator.on_reply(*reply).ok());
    }
    std::string junk(kHelloSize + kProofSize, '\0');
    for (char& c : junk) c = static_cast<char>(random());
    EXPECT_FALSE(InitiatorHandshake(config()).on_reply(junk).ok());
  }
}

}  // namespace
}  // namespace stagewire
