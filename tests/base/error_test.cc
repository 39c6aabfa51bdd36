// Error, Result and NodeId: text forms, context, misuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <unordered_set>

#include <stagewire/base/error.h>
#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>

namespace stagewire {
namespace {

using testing::HasSubstr;

TEST(ErrorTest, PrintsContextKindMessageAndCauseOnOneLine) {
  const Error error = Error(ErrorKind::deadline_exceeded, "no grant within 30 s")
                          .with_operation("get")
                          .with_key("request-7")
                          .with_peer("10.0.0.2:7000")
                          .with_transport("tcp")
                          .with_cause(Error(ErrorKind::io, "connection reset"));
  EXPECT_EQ(error.to_string(),
            "get key=request-7 peer=10.0.0.2:7000 transport=tcp: deadline_exceeded: no grant within 30 s "
            "(caused by io: connection reset)");
  std::ostringstream out;
  out << error;
  EXPECT_EQ(out.str(), error.to_string());
}

TEST(ErrorTest, WithoutContextStartsWithTheKind) {
  EXPECT_EQ(Error(ErrorKind::closed, "gone").to_string(), "closed: gone");
}

TEST(ErrorTest, TheInnermostContextWins) {
  const Error error = Error(ErrorKind::io, "x").with_peer("inner").with_peer("outer").with_key("");
  EXPECT_EQ(error.peer(), "inner");
  EXPECT_EQ(error.key(), "");
  const Error caused =
      Error(ErrorKind::io, "x").with_cause(Error(ErrorKind::io, "1")).with_cause(Error(ErrorKind::io, "2"));
  ASSERT_NE(caused.cause(), nullptr);
  EXPECT_EQ(caused.cause()->message(), "1");
}

TEST(ErrorTest, CopiesAreIndependentAndShareTheCause) {
  Error first = Error(ErrorKind::io, "x").with_cause(Error(ErrorKind::closed, "y"));
  Error second = first;
  second.with_key("k");
  EXPECT_EQ(first.key(), "");
  EXPECT_EQ(first.cause(), second.cause());
}

TEST(ErrorTest, FromErrnoCarriesTheSystemsText) {
  const Error error = Error::from_errno(ENOENT, "open x");
  EXPECT_EQ(error.kind(), ErrorKind::io);
  EXPECT_EQ(error.message(), "open x: No such file or directory");
}

TEST(ErrorTest, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::internal); ++kind) {
    const std::string_view name = to_string(static_cast<ErrorKind>(kind));
    EXPECT_NE(name, "unknown") << kind;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(static_cast<ErrorKind>(255)), "unknown");
}

Result<int> half(int number) {
  if (number % 2 != 0) return Error(ErrorKind::invalid_argument, "odd");
  return number / 2;
}

Result<int> quarter(int number) {
  STAGEWIRE_ASSIGN(const int first, half(number));
  STAGEWIRE_ASSIGN(const int second, half(first));
  return second;
}

Status both_even(int a, int b) {
  STAGEWIRE_TRY(half(a));
  STAGEWIRE_TRY(half(b));
  return {};
}

TEST(ResultTest, MacrosPassValuesAndErrorsOn) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().message(), "odd");
  EXPECT_TRUE(both_even(2, 4).ok());
  EXPECT_EQ(both_even(2, 3).error().kind(), ErrorKind::invalid_argument);
}

TEST(ResultTest, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, MisuseAbortsWithTheErrorsText) {
  Result<int> failed = Error(ErrorKind::busy, "table full");
  EXPECT_DEATH(static_cast<void>(failed.value()), "busy: table full");
  Result<int> fine = 1;
  EXPECT_DEATH(static_cast<void>(fine.error()), "error\\(\\) of a successful Result");
  const Status status = Error(ErrorKind::busy, "table full");
  EXPECT_DEATH(status.value(), "busy: table full");
  const Status success;
  EXPECT_DEATH(static_cast<void>(success.error()), "successful");
}

TEST(NodeIdTest, HexGoesThereAndBack) {
  const NodeId id = NodeId::random();
  EXPECT_FALSE(id.is_nil());
  EXPECT_EQ(id.hex().size(), 32U);
  EXPECT_EQ(id.brief(), id.hex().substr(0, 8));
  EXPECT_EQ(NodeId::parse(id.hex()).value(), id);
  EXPECT_EQ(NodeId::parse("000102030405060708090A0b0c0d0e0f").value().hex(),
            "000102030405060708090a0b0c0d0e0f");
  EXPECT_TRUE(NodeId().is_nil());
}

TEST(NodeIdTest, RefusesOtherTexts) {
  EXPECT_THAT(NodeId::parse("abc").error().message(), HasSubstr("got 3 characters"));
  EXPECT_EQ(NodeId::parse("").error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(NodeId::parse("g0010203040506070809000000000000").error().message(),
              HasSubstr("another character"));
}

TEST(NodeIdTest, RandomIdsDiffer) {
  std::unordered_set<NodeId> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(NodeId::random());
  EXPECT_EQ(ids.size(), 1000U);
}

}  // namespace
}  // namespace stagewire
