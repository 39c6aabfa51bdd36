// Options from dicts, text and the environment; bounds; what depends on two options; descriptions and docs.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include <stagewire/base/config.h>

#include "base/temporary_file.h"

namespace stagewire {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using List = std::vector<std::string>;

std::string set_error(std::string_view name, const ConfigValue& value) {
  NodeConfig config;
  const Status status = set_option(config, name, value);
  EXPECT_FALSE(status) << name << " was accepted";
  if (status) return "";
  EXPECT_EQ(status.error().kind(), ErrorKind::config);
  EXPECT_EQ(config, NodeConfig()) << "a failed set_option changed the configuration";
  return status.error().message();
}

NodeConfig with(std::string_view name, const ConfigValue& value) {
  NodeConfig config;
  const Status status = set_option(config, name, value);
  EXPECT_TRUE(status) << status.error();
  return config;
}

std::string validate_error(const NodeConfig& config) {
  const Status status = validate(config);
  EXPECT_FALSE(status) << "the configuration was accepted";
  if (status) return "";
  EXPECT_EQ(status.error().kind(), ErrorKind::config);
  return status.error().message();
}

TEST(ConfigTest, TheDefaultsAreValidAndAsDocumented) {
  const NodeConfig config;
  EXPECT_TRUE(validate(config)) << validate(config).error();
  EXPECT_EQ(config.publish_pool_size, 1ULL << 30);
  EXPECT_EQ(config.ttl, seconds(300));
  EXPECT_EQ(config.max_lifetime, minutes(30));
  EXPECT_EQ(config.lease, seconds(10));
  EXPECT_THAT(config.listen, ElementsAre("127.0.0.1:0"));
  EXPECT_THAT(config.routes, ElementsAre("auto"));
}

TEST(ConfigTest, EveryDefaultIsAcceptedAsTextAndChangesNothing) {
  for (const ConfigOption& option : config_options()) {
    NodeConfig config;
    const Status status = set_option(config, option.name, option.default_text);
    EXPECT_TRUE(status) << option.name << ": " << status.error();
    EXPECT_EQ(config, NodeConfig()) << option.name;
  }
}

TEST(ConfigTest, EveryNumbersBoundsAreAcceptedAndNothingBeyond) {
  int numbers = 0;
  for (const ConfigOption& option : config_options()) {
    if (option.maximum.empty()) continue;
    ++numbers;
    EXPECT_EQ(option.minimum.empty(), false) << option.name;
    // A default may be one of the bounds, but not both.
    const bool sets = with(option.name, option.maximum) != NodeConfig() ||
                      with(option.name, option.minimum) != NodeConfig();
    EXPECT_TRUE(sets) << option.name;
    EXPECT_THAT(set_error(option.name, std::string("-1")), HasSubstr("option '" + option.name + "'"));
    EXPECT_THAT(set_error(option.name, std::string("99999999999999999999")),
                HasSubstr("option '" + option.name + "'"));
    set_error(option.name, std::numeric_limits<std::int64_t>::max());
    set_error(option.name, std::int64_t{-1});
    set_error(option.name, std::numeric_limits<double>::infinity());
    set_error(option.name, std::numeric_limits<double>::quiet_NaN());
    set_error(option.name, true);
    set_error(option.name, List{"1"});
    set_error(option.name, std::string());
  }
  EXPECT_GE(numbers, 20);
}

TEST(ConfigTest, UnderstandsEveryFormOfAValue) {
  EXPECT_TRUE(with("insecure", true).insecure);
  EXPECT_TRUE(with("insecure", std::string("Yes")).insecure);
  EXPECT_FALSE(with("touch_pools", std::string("off")).touch_pools);
  EXPECT_EQ(with("copy_threads", std::int64_t{8}).copy_threads, 8U);
  EXPECT_EQ(with("copy_threads", std::string(" 8 ")).copy_threads, 8U);
  EXPECT_EQ(with("publish_pool_size", std::string("4 GiB")).publish_pool_size, 4ULL << 30);
  EXPECT_EQ(with("publish_pool_size", std::int64_t{1} << 21).publish_pool_size, 1ULL << 21);
  EXPECT_EQ(with("publish_pool_size", 2e6).publish_pool_size, 2'000'000U);
  EXPECT_EQ(with("ttl", std::string("250ms")).ttl, milliseconds(250));
  EXPECT_EQ(with("ttl", std::int64_t{60}).ttl, seconds(60));
  EXPECT_EQ(with("ttl", 0.25).ttl, milliseconds(250));
  EXPECT_EQ(with("name", std::string("thinker")).name, "thinker");
  EXPECT_THAT(with("listen", std::string("127.0.0.1:1, [::1]:2")).listen,
              ElementsAre("127.0.0.1:1", "[::1]:2"));
  EXPECT_THAT(with("listen", List{"a:1", "b:2"}).listen, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(with("listen", std::string()).listen, IsEmpty());
  EXPECT_THAT(with("routes", std::string("shm,tcp")).routes, ElementsAre("shm", "tcp"));
  EXPECT_EQ(with("log_level", std::string("debug")).log_level, "debug");
}

TEST(ConfigTest, ErrorsSayWhatWasWrongAndWhatWasExpected) {
  EXPECT_EQ(set_error("copy_threads", std::int64_t{65}),
            "option 'copy_threads': expected a whole number from 0 to 64, got the number 65");
  EXPECT_THAT(set_error("copy_threads", 1.5), HasSubstr("expected a whole number"));
  EXPECT_THAT(set_error("copy_threads", std::string("many")), HasSubstr("got 'many'"));
  EXPECT_THAT(set_error("insecure", std::int64_t{1}), HasSubstr("expected true or false, got the number 1"));
  EXPECT_THAT(set_error("insecure", std::string("maybe")), HasSubstr("expected true or false, got 'maybe'"));
  EXPECT_THAT(set_error("ttl", std::string("300")), HasSubstr("write '300 s' for seconds"));
  EXPECT_THAT(set_error("ttl", std::string("1 ms")), HasSubstr("at least 10 ms"));
  EXPECT_THAT(set_error("ttl", 0.001), HasSubstr("expected a duration from 10 ms to 30 d"));
  EXPECT_THAT(set_error("ttl", List{"1 s"}), HasSubstr("got a list"));
  EXPECT_THAT(set_error("publish_pool_size", 1048576.5), HasSubstr("expected a size from 1 MiB to 16 TiB"));
  EXPECT_THAT(set_error("name", std::int64_t{5}), HasSubstr("expected a text, got the number 5"));
  EXPECT_THAT(set_error("name", std::string("a\nb")), HasSubstr("control character"));
  EXPECT_THAT(set_error("name", std::string(5000, 'a')), HasSubstr("5000 bytes"));
  EXPECT_THAT(set_error("log_level", std::string("loud")),
              HasSubstr("expected one of trace, debug, info, warn, error, off, got 'loud'"));
  EXPECT_THAT(set_error("routes", std::string("shm,rdma")),
              HasSubstr("expected a list out of auto, local, shm, verbs, tcp, got 'rdma'"));
  EXPECT_THAT(set_error("routes", true), HasSubstr("got true"));
  EXPECT_THAT(set_error("listen", std::string("a:1,,b:2")), HasSubstr("empty item"));
  EXPECT_THAT(set_error("listen", std::string("a:1,")), HasSubstr("empty item"));
  EXPECT_THAT(set_error("listen", List(65, "a:1")), HasSubstr("65 items"));
}

TEST(ConfigTest, AWrongSecretIsNotRepeatedInTheError) {
  EXPECT_THAT(set_error("secret", List{"hunter2"}), Not(HasSubstr("hunter2")));
  EXPECT_THAT(set_error("secret", std::int64_t{1234567}), Not(HasSubstr("1234567")));
  EXPECT_THAT(set_error("secret", std::string("hunter2\n")), Not(HasSubstr("hunter2")));
}

TEST(ConfigTest, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(set_error("publish_pool_sise", std::string("1 GiB")),
            "there is no option 'publish_pool_sise'; did you mean 'publish_pool_size'?");
  EXPECT_THAT(set_error("hearbeat", std::string("1 s")), HasSubstr("did you mean 'heartbeat'?"));
  EXPECT_THAT(set_error("Log-Level", std::string("info")), HasSubstr("did you mean 'log_level'?"));
  EXPECT_THAT(set_error("tcpconnections", std::int64_t{1}), HasSubstr("did you mean 'tcp_connections'?"));
  EXPECT_THAT(set_error("colour", std::int64_t{1}),
              AllOf(HasSubstr("'colour'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(set_error("", std::int64_t{1}), Not(HasSubstr("did you mean")));
  EXPECT_LT(set_error(std::string(100'000, 'x'), std::int64_t{1}).size(), 250U);
}

TEST(ConfigTest, ADictIsAppliedWholeOrNotAtAll) {
  NodeConfig config;
  ASSERT_TRUE(apply_dict(config, {{"ttl", std::string("1 min")}, {"insecure", true}}));
  EXPECT_EQ(config.ttl, minutes(1));
  const NodeConfig before = config;
  EXPECT_FALSE(
      apply_dict(config, {{"ttl", std::string("2 min")}, {"insecure", std::string("no")}, {"tll", 1.0}}));
  EXPECT_EQ(config, before);
  const Status twice = apply_dict(config, {{"ttl", std::string("2 min")}, {"ttl", std::string("3 min")}});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message(), HasSubstr("'ttl' is set twice"));
}

TEST(ConfigTest, ValidateFindsFieldsFilledByHand) {
  NodeConfig config;
  config.ttl = -seconds(1);
  EXPECT_THAT(validate_error(config),
              HasSubstr("option 'ttl': expected a duration from 10 ms to 30 d, got -1 s"));
  config = {};
  config.publish_pool_size = 1;
  EXPECT_THAT(validate_error(config), HasSubstr("option 'publish_pool_size': expected a size from 1 MiB"));
  config = {};
  config.tcp_connections = 17;
  EXPECT_THAT(validate_error(config), HasSubstr("from 1 to 16, got 17"));
  config = {};
  config.log_level = "loud";
  EXPECT_THAT(validate_error(config), HasSubstr("log_level"));
  config = {};
  config.name = std::string("a\0b", 3);
  EXPECT_THAT(validate_error(config), HasSubstr("control character"));
}

TEST(ConfigTest, ValidateChecksWhatDependsOnTwoOptions) {
  NodeConfig config;
  config.rdma_window = config.rdma_chunk - 1;
  EXPECT_THAT(validate_error(config), AllOf(HasSubstr("rdma_window"), HasSubstr("rdma_chunk")));
  config = {};
  config.lease = seconds(2);
  EXPECT_THAT(validate_error(config), AllOf(HasSubstr("'lease' (2 s)"), HasSubstr("3 × 'heartbeat' (1 s)")));
  config.lease = seconds(3);
  EXPECT_TRUE(validate(config));
  config.max_lifetime = seconds(299);
  EXPECT_THAT(validate_error(config), HasSubstr("'max_lifetime' (299 s) must be at least 'ttl' (5 min)"));
  config = {};
  config.secret = "x";
  EXPECT_TRUE(validate(config));
  config.secret_file = "/y";
  EXPECT_THAT(validate_error(config), HasSubstr("'secret' and 'secret_file'"));
  config.secret.clear();
  config.insecure = true;
  EXPECT_THAT(validate_error(config), HasSubstr("'insecure'"));
}

TEST(ConfigTest, ValidateChecksAddressesRoutesAndNames) {
  const auto error_of = [](const auto& change) {
    NodeConfig config;
    change(config);
    return validate_error(config);
  };
  EXPECT_THAT(error_of([](NodeConfig& c) { c.listen = {"::1:80"}; }), HasSubstr("option 'listen': '::1:80'"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.listen = {"a:1", "a:1"}; }), HasSubstr("is there twice"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.advertise = {"a:0"}; }), HasSubstr("needs the port"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.routes = {}; }), HasSubstr("the list is empty"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.routes = {"tcp", "tcp"}; }), HasSubstr("there twice"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.routes = {"tcp", "auto"}; }), HasSubstr("auto stands for all"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.socket_dir = "run"; }), HasSubstr("absolute path"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.socket_dir = "/" + std::string(64, 'x'); }),
              HasSubstr("54 bytes"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.name = std::string(65, 'x'); }), HasSubstr("64 bytes"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.tcp_congestion = "a-very-long-name"; }), HasSubstr("15 bytes"));
  EXPECT_THAT(error_of([](NodeConfig& c) { c.tcp_buffer = 100; }), HasSubstr("0 or at least 4 KiB"));
  NodeConfig config;
  config.listen = {"127.0.0.1:0", "127.0.0.1:0", "[::1]:7000", "0.0.0.0:7000"};
  config.advertise = {"stage-a.example:7000"};
  config.routes = {"shm", "tcp"};
  EXPECT_TRUE(validate(config)) << validate(config).error();
}

TEST(ConfigEnvironmentTest, SetsWhatIsNamed) {
  NodeConfig config;
  const List variables{"PATH=/bin", "STAGEWIRE_TTL=1 min", "STAGEWIRE_LISTEN=a:1,b:2", "STAGEWIRE_NAME=a=b",
                       "stagewire_lease=1 s"};
  ASSERT_TRUE(apply_environment(config, variables));
  EXPECT_EQ(config.ttl, minutes(1));
  EXPECT_THAT(config.listen, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(config.name, "a=b");
  EXPECT_EQ(config.lease, NodeConfig().lease);
}

TEST(ConfigEnvironmentTest, ErrorsNameTheVariable) {
  NodeConfig config;
  const Status wrong = apply_environment(config, List{"STAGEWIRE_TTL=soon"});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(),
              testing::StartsWith("environment variable STAGEWIRE_TTL: option 'ttl': 'soon'"));
  const Status typo = apply_environment(config, List{"STAGEWIRE_HEARTBEET=1 s"});
  ASSERT_FALSE(typo);
  EXPECT_THAT(typo.error().message(), HasSubstr("did you mean STAGEWIRE_HEARTBEAT?"));
  EXPECT_EQ(config, NodeConfig());
}

TEST(ConfigEnvironmentTest, LeavesOtherPeoplesVariablesAlone) {
  // What Kubernetes puts into the environment where a service is called "stagewire".
  NodeConfig config;
  EXPECT_TRUE(
      apply_environment(config, List{"STAGEWIRE_SERVICE_HOST=10.0.0.1", "STAGEWIRE_SERVICE_PORT=7000",
                                     "STAGEWIRE_PORT=tcp://10.0.0.1:7000", "STAGEWIRE_PORT_7000_TCP=x",
                                     "STAGEWIRE_PORT_7000_TCP_ADDR=x", "STAGEWIRE_PORT_7000_TCP_PROTO=tcp",
                                     "STAGEWIRE_HOST=x", "STAGEWIRE_=x"}));
  EXPECT_EQ(config, NodeConfig());
}

TEST(LoadConfigTest, ExplicitWinsOverEnvironmentOverFileOverDefault) {
  const TemporaryFile file("ttl: 1 min\nlease: 20 s\nspin: 10 us\n");
  ASSERT_EQ(::setenv("STAGEWIRE_TTL", "2 min", 1), 0);
  ASSERT_EQ(::setenv("STAGEWIRE_LEASE", "30 s", 1), 0);
  const auto config = load_config({file.path(), true, {{"ttl", std::string("3 min")}}});
  const auto without_environment = load_config({file.path(), false, {}});
  ::unsetenv("STAGEWIRE_TTL");
  ::unsetenv("STAGEWIRE_LEASE");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->ttl, minutes(3));
  EXPECT_EQ(config->lease, seconds(30));
  EXPECT_EQ(config->spin, std::chrono::microseconds(10));
  EXPECT_EQ(config->heartbeat, NodeConfig().heartbeat);
  ASSERT_TRUE(without_environment);
  EXPECT_EQ(without_environment->ttl, minutes(1));
}

TEST(LoadConfigTest, AStrongerSourcesSecretReplacesEitherFormOfTheWeakerOnes) {
  const TemporaryFile file("secret: from-file\n");
  const auto config = load_config({file.path(), false, {{"secret_file", std::string("/key")}}});
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->secret, "");
  EXPECT_EQ(config->secret_file, "/key");
  EXPECT_FALSE(load_config(
      {std::nullopt, false, {{"secret_file", std::string("/key")}, {"secret", std::string("x")}}}));
}

TEST(LoadConfigTest, ValidatesTheWhole) {
  const auto config = load_config({std::nullopt, false, {{"heartbeat", std::string("5 s")}}});
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("3 × 'heartbeat' (5 s)"));
}

TEST(DescribeTest, IsYamlThatGivesTheSameConfigurationBack) {
  NodeConfig config;
  config.name = "quote \" back \\ slash: # \u00b5";
  config.listen = {"127.0.0.1:0", "[::1]:7000"};
  config.ttl = milliseconds(1500);
  config.publish_pool_size = 123'456'789;
  config.insecure = true;
  NodeConfig read;
  const Status status = apply_yaml(read, describe(config));
  ASSERT_TRUE(status) << status.error();
  EXPECT_EQ(read, config);
}

TEST(DescribeTest, ListsEveryOptionAndNoSecret) {
  NodeConfig config;
  config.secret = "hunter2";
  const std::string text = describe(config);
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(text, HasSubstr("\nsecret: \"(redacted)\"\n"));
  for (const ConfigOption& option : config_options())
    EXPECT_THAT("\n" + text, HasSubstr("\n" + option.name + ": "));
  EXPECT_THAT(describe(NodeConfig()), HasSubstr("\nsecret: \"\"\n"));
}

TEST(ConfigOptionsTest, AreCompleteAndPrintable) {
  std::set<std::string> names;
  for (const ConfigOption& option : config_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.doc.empty()) << option.name;
    EXPECT_EQ(option.doc.find_first_of("\n|"), std::string::npos) << option.name;
    EXPECT_EQ(option.environment.substr(0, 10), "STAGEWIRE_");
    EXPECT_THAT(config_markdown(), HasSubstr("| `" + option.name + "` |"));
    EXPECT_NE(to_string(option.type), "unknown");
  }
  EXPECT_EQ(names.size(), 56U);
  EXPECT_THAT(config_markdown(),
              HasSubstr("| `ttl` | duration | `5 min` | 10 ms … 30 d | `STAGEWIRE_TTL` |"));
  EXPECT_EQ(std::count_if(config_options().begin(), config_options().end(),
                          [](const ConfigOption& option) { return option.secret; }),
            1);
}

}  // namespace
}  // namespace stagewire
