// "host:port" in both directions.
#include "base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewire {
namespace {

using testing::HasSubstr;

TEST(HostPortTest, UnderstandsNamesAndBothFamilies) {
  EXPECT_EQ(parse_host_port("127.0.0.1:0").value(), (HostPort{"127.0.0.1", 0}));
  EXPECT_EQ(parse_host_port("stage-a.example:65535").value(), (HostPort{"stage-a.example", 65535}));
  EXPECT_EQ(parse_host_port("[::1]:7000").value(), (HostPort{"::1", 7000}));
  EXPECT_EQ(parse_host_port("[fe80::1%eth0]:7000").value(), (HostPort{"fe80::1%eth0", 7000}));
}

TEST(HostPortTest, PrintsWhatItReads) {
  for (const std::string_view text : {"127.0.0.1:0", "a_b-c:1", "[::]:80"}) {
    EXPECT_EQ(to_string(parse_host_port(text).value()), text);
  }
}

TEST(HostPortTest, SaysWhatIsWrong) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", "port is missing"},
      {"localhost", "port is missing"},
      {"[::1]", "port is missing"},
      {"::1:80", "needs brackets"},
      {"[::1:80", "bracket is not closed"},
      {"[::1]x:80", "must be followed by the port"},
      {"[host]:80", "brackets are for IPv6"},
      {":80", "host is missing"},
      {"[]:80", "brackets are for IPv6"},
      {"a:", "port must be a number"},
      {"a:65536", "port must be a number"},
      {"a:-1", "port must be a number"},
      {"a:+1", "port must be a number"},
      {"a:80 ", "port must be a number"},
      {"a b:80", "character that no host has"},
      {"tcp://a:80", "needs brackets"},
      {"a/b:80", "character that no host has"}};
  for (const auto& [text, what] : cases) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(parsed.error().message(), HasSubstr(std::string(what))) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("expected host:port or [IPv6 address]:port"));
  }
  EXPECT_THAT(parse_host_port(std::string(300, 'a') + ":1").error().message(), HasSubstr("too long"));
}

}  // namespace
}  // namespace stagewire
