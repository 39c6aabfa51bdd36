// The forms of addresses, and what is refused.
#include "session/address.h"

#include <gtest/gtest.h>

#include <stagewire/base/config.h>

namespace stagewire {
namespace {

TEST(Address, RoundTrips) {
  for (const char* text : {"127.0.0.1:80", "[::1]:65535", "host.example:1", "127.0.0.1:0", "unix:@name",
                           "unix:/run/x.sock", "unix:@with:colon"}) {
    const Result<Address> address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(Address, KnowsItsParts) {
  const Address v6 = Address::parse("[fe80::1]:7").value();
  EXPECT_EQ(v6.kind, Address::Kind::tcp);
  EXPECT_EQ(v6.host, "fe80::1");
  EXPECT_EQ(v6.port, 7);
  const Address path = Address::parse("unix:/a/b").value();
  EXPECT_EQ(path.kind, Address::Kind::unix_socket);
  EXPECT_EQ(path.path, "/a/b");
}

TEST(Address, RefusesWithTheTextAndTheForms) {
  const std::string longest = "unix:@" + std::string(106, 'n');
  EXPECT_TRUE(Address::parse(longest).ok());
  for (const std::string& text :
       {std::string(), std::string("host"), std::string("host:"), std::string(":80"),
        std::string("host:65536"), std::string("host:-1"), std::string("host:8x"), std::string("::1:80"),
        std::string("[::1]"), std::string("[::1:80"), std::string("unix:"), std::string("unix:@"),
        std::string("unix:name"), std::string("unix:/"), longest + "n", std::string("unix:@a\0b", 9),
        std::string("a b:80"), std::string("host:80 "), std::string(2000, 'x')}) {
    const Result<Address> address = Address::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(address.error().message().find("unix:"), std::string::npos) << address.error();
    EXPECT_LT(address.error().message().size(), 600U);
  }
}

TEST(Address, WellKnownUnixNames) {
  EXPECT_EQ(unix_name_of_port(80, ""), "@stagewire-port-80");
  EXPECT_EQ(unix_name_of_port(80, "/run/sw"), "/run/sw/stagewire-port-80.sock");
  EXPECT_EQ(unix_name_of_node(std::string(32, 'a'), "").front(), '@');
  // Whatever socket directory the configuration allows gives names that fit.
  for (std::size_t length = 40; length < 100; ++length) {
    NodeConfig config;
    config.socket_dir = "/" + std::string(length - 1, 'd');
    if (!validate(config).ok()) {
      EXPECT_GT(length, 54U);
      continue;
    }
    for (const std::string& name : {unix_name_of_port(65535, config.socket_dir),
                                    unix_name_of_node(std::string(32, 'a'), config.socket_dir)})
      EXPECT_TRUE(Address::parse("unix:" + name).ok()) << name.size();
  }
}

}  // namespace
}  // namespace stagewire
