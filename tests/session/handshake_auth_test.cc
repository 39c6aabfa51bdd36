// Authentication in the handshake: every way of cheating that the protocol is made to stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <utility>

#include "session/handshake.h"
#include "session/handshake_support.h"
#include "session/hello.h"

namespace stagewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HandshakeAuth, ModesThatDifferAreSaidAtBothEnds) {
  for (const AuthMode a : kModes) {
    for (const AuthMode b : kModes) {
      if (a == b) continue;
      const Attempt out = run(config(a), config(b));
      ASSERT_TRUE(out.reply && !out.reply->ok());
      ASSERT_TRUE(out.proof && !out.proof->ok());
      EXPECT_EQ(out.reply->error().kind(), ErrorKind::auth_failed);
      EXPECT_EQ(out.proof->error().kind(), ErrorKind::auth_failed);
      const auto says = [](AuthMode ours, AuthMode theirs) {
        return AllOf(HasSubstr("this node uses auth mode '" + std::string(to_string(ours))),
                     HasSubstr("the peer '" + std::string(to_string(theirs)) + "'"));
      };
      EXPECT_THAT(out.reply->error().message(), says(b, a));
      EXPECT_THAT(out.proof->error().message(), says(a, b));
    }
  }
}

TEST(HandshakeAuth, AWrongSecretIsSaidAtBothEnds) {
  const HandshakeConfig a = config();
  HandshakeConfig b = config();
  b.secret = test_secret(1);
  InitiatorHandshake initiator(a);
  ResponderHandshake responder(b);
  std::string refusal;
  const std::string reply = responder.on_hello(initiator.hello(), refusal).value();
  const Result<std::string> proof = initiator.on_reply(reply);
  ASSERT_FALSE(proof.ok());
  EXPECT_EQ(proof.error().kind(), ErrorKind::auth_failed);
  EXPECT_THAT(proof.error().message(), AllOf(HasSubstr("the peer does not know this node's secret"),
                                             HasSubstr("configure the same secret on both nodes")));
  EXPECT_EQ(initiator.result().key, SessionKey{});
  EXPECT_EQ(responder.closed_before_proof().kind(), ErrorKind::auth_failed);
  EXPECT_THAT(responder.closed_before_proof().message(), HasSubstr("the secrets differ"));

  const Result<HandshakeResult> end = responder.on_proof(InitiatorHandshake::rejection());
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().kind(), ErrorKind::auth_failed);
  EXPECT_THAT(end.error().message(), HasSubstr("the peer does not know this node's secret"));
}

TEST(HandshakeAuth, SecretsThatShareAPrefixDiffer) {
  HandshakeConfig a = config();
  HandshakeConfig b = config();
  a.secret = test_secret() + std::string(100, 'x') + "1";
  b.secret = test_secret() + std::string(100, 'x') + "2";
  EXPECT_EQ(first_error(run(a, b)).kind(), ErrorKind::auth_failed);
  b.secret = a.secret;
  EXPECT_TRUE(succeeded(run(a, b)));
}

TEST(HandshakeAuth, AShortSecretIsAConfigError) {
  HandshakeConfig bad = config();
  bad.secret = std::string(31, 'x');
  EXPECT_EQ(first_error(run(config(), bad)).kind(), ErrorKind::config);
  EXPECT_EQ(first_error(run(bad, config())).kind(), ErrorKind::config);
  bad.secret.clear();
  EXPECT_EQ(first_error(run(bad, bad)).kind(), ErrorKind::config);
}

TEST(HandshakeAuth, DiallingOneselfIsSaidAtBothEnds) {
  const HandshakeConfig self = config();
  const Attempt out = run(self, self);
  ASSERT_TRUE(out.reply && !out.reply->ok());
  ASSERT_TRUE(out.proof && !out.proof->ok());
  for (const Error& error : {out.reply->error(), out.proof->error()}) {
    EXPECT_EQ(error.kind(), ErrorKind::auth_failed);
    EXPECT_THAT(error.message(), HasSubstr("this address is this node itself"));
  }
}

TEST(HandshakeAuth, AReflectedHelloIsDetected) {
  for (const AuthMode mode : kModes) {
    InitiatorHandshake initiator(config(mode));
    const Result<std::string> out = initiator.on_reply(initiator.hello() + std::string(kProofSize, '\0'));
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().kind(), ErrorKind::auth_failed);
    EXPECT_THAT(out.error().message(), HasSubstr("reflected handshake"));
  }
}

TEST(HandshakeAuth, AReflectionWithAnotherNameAndRoleIsDetected) {
  InitiatorHandshake initiator(config());
  std::string reflected = initiator.hello();
  reflected[kRoleAt] = static_cast<char>(HelloRole::responder);
  reflected[kChosenAt] = 1;
  reflected[kNodeAt] = static_cast<char>(reflected[kNodeAt] ^ 1);
  const Result<std::string> out = initiator.on_reply(reflected + std::string(kProofSize, '\0'));
  EXPECT_THAT(out.error().message(), HasSubstr("reflected handshake"));
}

TEST(HandshakeAuth, TheRespondersProofIsNotTheInitiators) {
  const Attempt out = run(config(), config(), untouched, untouched, untouched);
  ASSERT_TRUE(succeeded(out));
  EXPECT_NE(out.reply->value().substr(kHelloSize), out.proof->value());

  InitiatorHandshake initiator(config());
  ResponderHandshake responder(config());
  std::string refusal;
  const std::string reply = responder.on_hello(initiator.hello(), refusal).value();
  EXPECT_EQ(responder.on_proof(reply.substr(kHelloSize)).error().kind(), ErrorKind::auth_failed);
}

TEST(HandshakeAuth, ReplayedInitiatorMessagesAreRefused) {
  for (const AuthMode mode : kModes) {
    const HandshakeConfig a = config(mode);
    const HandshakeConfig b = config(mode);
    InitiatorHandshake initiator(a);
    ResponderHandshake first(b);
    std::string refusal;
    const std::string reply = first.on_hello(initiator.hello(), refusal).value();
    const std::string proof = initiator.on_reply(reply).value();
    ASSERT_TRUE(first.on_proof(proof).ok());

    ResponderHandshake second(b);
    const std::string other_reply = second.on_hello(initiator.hello(), refusal).value();
    EXPECT_NE(other_reply, reply);
    EXPECT_EQ(second.on_proof(proof).error().kind(), ErrorKind::auth_failed);
  }
}

TEST(HandshakeAuth, AReplayedReplyIsRefused) {
  const HandshakeConfig a = config();
  ResponderHandshake responder(config());
  InitiatorHandshake first(a);
  std::string refusal;
  const std::string reply = responder.on_hello(first.hello(), refusal).value();
  InitiatorHandshake second(a);
  EXPECT_EQ(second.on_reply(reply).error().kind(), ErrorKind::auth_failed);
}

TEST(HandshakeAuth, PublicKeysOfLowOrderAreRefused) {
  // The all-zero point and the point of order 1: any private key gives an all-zero shared point.
  for (const char last : {'\0', '\1'}) {
    const auto weaken = [last](std::string bytes) {
      bytes.replace(kKeyAt, 32, 32, '\0');
      bytes[kKeyAt] = last;
      return bytes;
    };
    for (const AuthMode mode : kModes) {
      const Attempt by_initiator = run(config(mode), config(mode), weaken, untouched, untouched);
      ASSERT_TRUE(by_initiator.reply && !by_initiator.reply->ok());
      EXPECT_EQ(by_initiator.reply->error().kind(), ErrorKind::auth_failed);
      EXPECT_THAT(by_initiator.reply->error().message(), HasSubstr("public key"));
      const Attempt by_responder = run(config(mode), config(mode), untouched, weaken, untouched);
      ASSERT_TRUE(by_responder.proof && !by_responder.proof->ok());
      EXPECT_EQ(by_responder.proof->error().kind(), ErrorKind::auth_failed);
    }
  }
}

TEST(HandshakeAuth, EveryChangedByteFailsAtOneOfTheEnds) {
  const auto flip = [](std::size_t at, int bit) {
    return [at, bit](std::string bytes) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      return bytes;
    };
  };
  const auto expect_typed = [](const Attempt& out, const std::string& where) {
    ASSERT_FALSE(succeeded(out)) << where;
    const ErrorKind kind = first_error(out).kind();
    EXPECT_TRUE(kind == ErrorKind::auth_failed || kind == ErrorKind::protocol ||
                kind == ErrorKind::version_mismatch)
        << where << ": " << first_error(out);
  };
  std::mt19937 random(3);
  for (const AuthMode mode : kModes) {
    const HandshakeConfig a = config(mode, {1, 3});
    const HandshakeConfig b = config(mode, {1, 3});
    for (std::size_t at = 0; at < kHelloSize; ++at) {
      const auto change = flip(at, static_cast<int>(random() % 8));
      // The highest bit of an X25519 key is ignored by the exchange, not by the transcript.
      expect_typed(run(a, b, change, untouched, untouched), "hello byte " + std::to_string(at));
      if (at == kKeyAt + 31) {
        expect_typed(run(a, b, flip(at, 7), untouched, untouched), "top bit of the initiator's key");
        expect_typed(run(a, b, untouched, flip(at, 7), untouched), "top bit of the responder's key");
      }
    }
    for (std::size_t at = 0; at < kHelloSize + kProofSize; ++at) {
      expect_typed(run(a, b, untouched, flip(at, static_cast<int>(random() % 8)), untouched),
                   "reply byte " + std::to_string(at));
    }
    for (std::size_t at = 0; at < kProofSize; ++at) {
      expect_typed(run(a, b, untouched, untouched, flip(at, static_cast<int>(random() % 8))),
                   "proof byte " + std::to_string(at));
    }
  }
}

}  // namespace
}  // namespace stagewire
