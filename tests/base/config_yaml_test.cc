// Configuration files: what is read, and every way in which a file can be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stagewire/base/config.h>

#include "base/temporary_file.h"

namespace stagewire {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

NodeConfig read(std::string_view yaml) {
  NodeConfig config;
  const Status status = apply_yaml(config, yaml, "node.yaml");
  EXPECT_TRUE(status) << status.error();
  return config;
}

std::string error_of(std::string_view yaml) {
  NodeConfig config;
  const Status status = apply_yaml(config, yaml, "node.yaml");
  EXPECT_FALSE(status) << "accepted: " << yaml.substr(0, 100);
  if (status) return "";
  EXPECT_EQ(status.error().kind(), ErrorKind::config);
  EXPECT_EQ(config, NodeConfig());
  EXPECT_LT(status.error().message().size(), 400U);
  return status.error().message();
}

TEST(ConfigYamlTest, ReadsScalarsAndLists) {
  const NodeConfig config = read(
      "# a node\n"
      "name: \"thinker\"\n"
      "publish_pool_size: 4 GiB   # plenty\n"
      "receive_pool_size: 65536 KiB\n"
      "ttl: 30 s\n"
      "copy_threads: 4\n"
      "insecure: yes\n"
      "log_level: off\n"
      "listen:\n  - 127.0.0.1:7000\n  - '[::1]:7000'\n"
      "routes: [shm, tcp]\n"
      "advertise: []\n"
      "socket_dir: ''\n");
  EXPECT_EQ(config.name, "thinker");
  EXPECT_EQ(config.publish_pool_size, 4ULL << 30);
  EXPECT_EQ(config.receive_pool_size, 64ULL << 20);
  EXPECT_EQ(config.ttl, std::chrono::seconds(30));
  EXPECT_EQ(config.copy_threads, 4U);
  EXPECT_TRUE(config.insecure);
  EXPECT_EQ(config.log_level, "off");
  EXPECT_THAT(config.listen, ElementsAre("127.0.0.1:7000", "[::1]:7000"));
  EXPECT_THAT(config.routes, ElementsAre("shm", "tcp"));
  EXPECT_THAT(config.advertise, IsEmpty());
}

TEST(ConfigYamlTest, EmptyTextAndCommentsAloneSetNothing) {
  for (const std::string_view text :
       {"", "\n\n", "# nothing here\n", "---\n", "---\n# nothing\n...\n", "~\n", "{}\n"}) {
    EXPECT_EQ(read(text), NodeConfig()) << text;
  }
}

TEST(ConfigYamlTest, ErrorsNameTheSourceTheLineAndTheOption) {
  EXPECT_EQ(error_of("name: a\nttl: soon\n"),
            "node.yaml, line 2: option 'ttl': 'soon' is not a duration; expected a duration such as '30 s', "
            "'250ms', "
            "'5 min', '1h' or '20 us'");
  EXPECT_EQ(error_of("\ntll: 1 s\n"), "node.yaml, line 2: there is no option 'tll'; did you mean 'ttl'?");
  EXPECT_EQ(error_of("ttl: 1 s\nname: x\nttl: 2 s\n"),
            "node.yaml, line 3: option 'ttl' is set twice; remove one");
}

TEST(ConfigYamlTest, RefusesOtherShapes) {
  EXPECT_THAT(error_of("- a\n- b\n"),
              HasSubstr("line 1: expected a mapping such as 'ttl: 300 s', got a list"));
  EXPECT_THAT(error_of("just text\n"), HasSubstr("got a single value"));
  EXPECT_THAT(error_of("ttl:\n  value: 1 s\n"),
              AllOf(HasSubstr("line 2: option 'ttl'"), HasSubstr("got a mapping")));
  EXPECT_THAT(error_of("ttl: [1 s]\n"), HasSubstr("expected a duration from 10 ms to 30 d, got a list"));
  EXPECT_THAT(error_of("listen: [[a:1]]\n"), HasSubstr("got a list in a list"));
  EXPECT_THAT(error_of("listen: [{a: 1}]\n"), HasSubstr("got a mapping"));
  EXPECT_THAT(error_of("? [a, b]\n: c\n"), HasSubstr("expected the name of an option"));
  EXPECT_THAT(error_of("ttl:\n"), HasSubstr("option 'ttl': the value is missing"));
  EXPECT_THAT(error_of("name: ~\n"), HasSubstr("the value is missing"));
  EXPECT_THAT(error_of("listen: [a:1, ~]\n"), HasSubstr("option 'listen': the value is missing"));
  EXPECT_THAT(error_of("ttl: 1 s\n---\nttl: 2 s\n"), HasSubstr("line 2: a second document"));
}

TEST(ConfigYamlTest, RefusesAnchorsAliasesAndTags) {
  EXPECT_THAT(error_of("name: &a x\nsecret: *a\n"), HasSubstr("anchors and aliases are not allowed"));
  EXPECT_THAT(error_of("listen: &l [a:1]\n"), HasSubstr("anchors"));
  EXPECT_THAT(error_of("&m {name: x}\n"), HasSubstr("anchors"));
  EXPECT_THAT(error_of("name: *nobody\n"), HasSubstr("anchors and aliases"));
  EXPECT_THAT(error_of("name: !!str 5\n"), HasSubstr("tags are not allowed"));
  EXPECT_THAT(error_of("listen: !x [a:1]\n"), HasSubstr("tags"));
}

TEST(ConfigYamlTest, RefusesDeepNesting) {
  EXPECT_THAT(error_of("ttl: [[[[1]]]]\n"), HasSubstr("nested deeper than 4 levels"));
  EXPECT_THAT(error_of("ttl: [[[1]]]\n"), HasSubstr("option 'ttl'"));
  EXPECT_THAT(error_of("a: " + std::string(100'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("a: " + std::string(100'000, '{')), HasSubstr("nested deeper"));
}

TEST(ConfigYamlTest, RefusesWhatIsNotYaml) {
  EXPECT_THAT(error_of("ttl: [1 s\nname: x\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("name: \"open\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("\tname: x\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("name: \xff\xfe\xfd\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of(std::string_view("name: a\0b\n", 10)), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("name: \"a\\0b\"\n"), HasSubstr("control character"));
}

TEST(ConfigYamlTest, RefusesHugeTextAndManyOptions) {
  EXPECT_THAT(error_of(std::string((1U << 20) + 1, ' ')), HasSubstr("larger than 1 MiB"));
  EXPECT_EQ(read(std::string(1U << 20, '\n')), NodeConfig());
  std::string many;
  for (int i = 0; i < 50'000; ++i) many += "option_" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(error_of(many), HasSubstr("there is no option 'option_0'"));
  std::string items = "listen:\n";
  for (int i = 0; i < 50'000; ++i) items += "- a:1\n";
  EXPECT_THAT(error_of(items), HasSubstr("the list has 50000 items"));
}

TEST(ConfigYamlFileTest, ReadsAFile) {
  const TemporaryFile file("ttl: 7 s\n");
  NodeConfig config;
  ASSERT_TRUE(apply_yaml_file(config, file.path()));
  EXPECT_EQ(config.ttl, std::chrono::seconds(7));
}

TEST(ConfigYamlFileTest, ErrorsNameTheFile) {
  const TemporaryFile wrong("ttl: soon\n");
  const TemporaryFile huge(std::string((1U << 20) + 1, '#'));
  NodeConfig config;
  EXPECT_THAT(apply_yaml_file(config, wrong.path()).error().message(),
              testing::StartsWith("file '" + wrong.path() + "', line 1: option 'ttl'"));
  EXPECT_THAT(apply_yaml_file(config, huge.path()).error().message(), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(apply_yaml_file(config, "/nonexistent/node.yaml").error().message(),
              HasSubstr("file '/nonexistent/node.yaml': cannot be opened: No such file"));
  EXPECT_THAT(apply_yaml_file(config, "/").error().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(apply_yaml_file(config, "").error().message(), HasSubstr("cannot be opened"));
  EXPECT_EQ(config, NodeConfig());
}

TEST(ConfigYamlFileTest, DoesNotWaitForAFifoOrADevice) {
  const std::string fifo = testing::TempDir() + "stagewire_test_fifo_" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  NodeConfig config;
  EXPECT_THAT(apply_yaml_file(config, fifo).error().message(), HasSubstr("not a regular file"));
  EXPECT_EQ(::unlink(fifo.c_str()), 0);
  EXPECT_THAT(apply_yaml_file(config, "/dev/zero").error().message(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace stagewire
