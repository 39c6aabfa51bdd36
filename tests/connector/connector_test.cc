// The connector's contract between two processes: run-time faults are "no" and a reason, a plain get never
// waits, and namespaces keep connectors apart.
#include <mutex>
#include <string>
#include <vector>

#include <stagewire/connector/connector.h>

#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ConnectorOptions options_of(ConnectorRole role, const std::string& host = "",
                            const std::string& name_space = "") {
  ConnectorOptions options;
  options.role = role;
  options.host = host;
  options.name_space = name_space;
  return options;
}

class ConnectorTest : public TwoNodes {
 protected:
  const Pattern pattern{.seed = 4, .size = 300'000, .parts = 2};

  std::shared_ptr<Connector> connector(ConnectorOptions options) {
    Result<std::shared_ptr<Connector>> made =
        Connector::create(node, std::move(options), [this](std::string_view level, const std::string& text) {
          const std::lock_guard lock(mutex_);
          log_.push_back(std::string(level) + ": " + text);
        });
    if (!made.ok()) {
      ADD_FAILURE() << made.error();
      return nullptr;
    }
    return *made;
  }
  std::shared_ptr<Connector> receiver() { return connector(options_of(ConnectorRole::receiver)); }
  /// A sender in the peer; gives what a receiver is told about it.
  ConnectorMetadata start_sender(const std::string& name = "s", const std::string& space = "") {
    const std::uint16_t port = GetParam() == Route::shm
                                   ? static_cast<std::uint16_t>(30'000 + ::getpid() % 9000 + next_port_++)
                                   : std::uint16_t{0};
    const Line opened = peer->expect_ok(Line("connector")
                                            .with("name", name)
                                            .with("role", "sender")
                                            .with("host", "127.0.0.1")
                                            .with("port", port)
                                            .with("space", space));
    ConnectorMetadata metadata;
    metadata.source_host = opened.text("host");
    metadata.source_port = static_cast<std::uint16_t>(opened.number("port"));
    return metadata;
  }
  static Line put_by(const std::string& name, const std::string& key, const Pattern& what) {
    return Line("connector_put")
        .with("name", name)
        .with("from", "0")
        .with("to", "1")
        .with("key", key)
        .with("seed", what.seed)
        .with("size", what.size)
        .with("parts", what.parts);
  }
  void expect_got(const std::optional<Got>& got, const Pattern& what) {
    ASSERT_TRUE(got.has_value()) << last_log();
    EXPECT_EQ(mismatch(got->payload, what), "");
  }
  std::string last_log() {
    const std::lock_guard lock(mutex_);
    return log_.empty() ? "" : log_.back();
  }
  std::optional<Got> poll(Connector& who, const std::string& key,
                          const std::optional<ConnectorMetadata>& metadata) {
    std::optional<Got> got;
    EXPECT_TRUE(eventually([&] {
      got = who.get("0", "1", key, metadata);
      return got.has_value();
    })) << last_log();
    return got;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
  int next_port_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Routes, ConnectorTest, kMainRoutes, route_name);

TEST(ConnectorRole, HasThreeNames) {
  EXPECT_EQ(parse_connector_role("sender").value(), ConnectorRole::sender);
  EXPECT_EQ(parse_connector_role("receiver").value(), ConnectorRole::receiver);
  EXPECT_EQ(parse_connector_role("dual").value(), ConnectorRole::dual);
  const Result<ConnectorRole> wrong = parse_connector_role("auto");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().kind(), ErrorKind::config);
  EXPECT_NE(wrong.error().message().find("dual"), std::string::npos);
}

TEST_P(ConnectorTest, PutAndGetWithEachFormOfMetadata) {
  start_both();
  const auto me = receiver();
  const ConnectorMetadata where = start_sender();
  // The address alone, polled.
  EXPECT_EQ(peer->expect_ok(put_by("s", "a", pattern)).number("put"), 1U);
  expect_got(poll(*me, "a", where), pattern);
  // Everything.
  const Line put = peer->expect_ok(put_by("s", "b", pattern));
  ConnectorMetadata full = where;
  full.ticket = put.text("ticket");
  full.data_size = put.number("data_size");
  EXPECT_EQ(full.data_size, pattern.size);
  EXPECT_EQ(put.text("host"), where.source_host);
  EXPECT_EQ(put.number("port"), where.source_port);
  expect_got(poll(*me, "b", full), pattern);
  // None: the sender that was named before.
  EXPECT_FALSE(me->get("0", "1", "c", std::nullopt).has_value());
  EXPECT_NE(last_log().find("no sender is known"), std::string::npos) << last_log();
  me->update_sender_info(where.source_host, where.source_port);
  peer->expect_ok(put_by("s", "c", pattern));
  expect_got(poll(*me, "c", std::nullopt), pattern);
  const ConnectorHealth health = me->health();
  EXPECT_TRUE(health.healthy);
  EXPECT_EQ(health.gets, 3U);
  EXPECT_EQ(health.bytes_got, 3 * pattern.size);
  EXPECT_EQ(peer->expect_ok(Line("connector_health").with("name", "s")).number("puts"), 3U);
}

TEST_P(ConnectorTest, AGetOfWhatIsNotThereSaysNoAtOnce) {
  start_both();
  const auto me = receiver();
  const ConnectorMetadata where = start_sender();
  // It never waits for the connection; the first answers come before there is one.
  EXPECT_TRUE(eventually([&] {
    EXPECT_FALSE(me->get("0", "1", "absent", where).has_value());
    return node->stats().sessions == 1;
  }));
  EXPECT_FALSE(me->get("0", "1", "absent", where).has_value());
  EXPECT_EQ(me->health().get_failures, 0U) << me->health().last_error;
  EXPECT_EQ(me->health().timeouts, 0U);
  EXPECT_EQ(peer->command(Line("stats")).number("waiting"), 0U);
  // Nor for a sender that is not there.
  ConnectorMetadata nobody = where;
  nobody.source_port = 1;
  EXPECT_FALSE(me->get("0", "1", "absent", nobody).has_value());
}

TEST_P(ConnectorTest, AStoppedSenderDoesNotHoldAPollUp) {
  start_both();
  const auto me = receiver();
  const ConnectorMetadata where = start_sender();
  peer->expect_ok(put_by("s", "a", pattern));
  expect_got(poll(*me, "a", where), pattern);
  ASSERT_TRUE(peer->stop());
  const Deadline guard = Deadline::in(seconds(20));
  EXPECT_FALSE(me->get("0", "1", "b", where).has_value());
  EXPECT_FALSE(guard.passed()) << "a get that does not wait took longer than 20 s";
  peer->resume();
  peer->expect_ok(put_by("s", "b", pattern));
  expect_got(poll(*me, "b", where), pattern);
}

TEST_P(ConnectorTest, GetWithDeadlineWaits) {
  start_both();
  const auto me = receiver();
  const ConnectorMetadata where = start_sender();
  peer->send(put_by("s", "a", pattern));
  expect_got(me->get_with_deadline("0", "1", "a", where, Deadline::in(seconds(40))), pattern);
  EXPECT_EQ(peer->answer().verb, "ok");
  EXPECT_FALSE(me->get_with_deadline("0", "1", "b", where, Deadline::in(milliseconds(100))).has_value());
  EXPECT_EQ(me->health().timeouts, 1U);
  EXPECT_NE(me->health().last_error.find("deadline_exceeded"), std::string::npos);
}

TEST_P(ConnectorTest, AWrongTicketFailsWithAReasonAndABadOneIsIgnored) {
  start_both();
  const auto me = receiver();
  ConnectorMetadata where = start_sender();
  where.ticket = peer->expect_ok(put_by("s", "a", pattern)).text("ticket");
  peer->expect_ok(put_by("s", "a", pattern));  // replaces it
  EXPECT_FALSE(me->get_with_deadline("0", "1", "a", where, Deadline::in(seconds(30))).has_value());
  EXPECT_NE(me->health().last_error.find("replaced"), std::string::npos) << me->health().last_error;
  EXPECT_EQ(me->health().get_failures, 1U);
  where.ticket = "rubbish";
  expect_got(me->get_with_deadline("0", "1", "a", where, Deadline::in(seconds(30))), pattern);
}

TEST_P(ConnectorTest, ConnectorsOfOneProcessDoNotMeet) {
  start_both();
  const auto me = receiver();
  const ConnectorMetadata first = start_sender("s1");
  const ConnectorMetadata second_sender = start_sender("s2");
  EXPECT_NE(first.source_port, second_sender.source_port);
  const Pattern other{.seed = 9, .size = 100'000, .parts = 1};
  peer->expect_ok(put_by("s1", "k", pattern));
  peer->expect_ok(put_by("s2", "k", other));
  expect_got(poll(*me, "k", second_sender), other);
  expect_got(poll(*me, "k", first), pattern);
  EXPECT_EQ(node->stats().sessions, 1U) << "two ports of one node need one session";
}

TEST_P(ConnectorTest, CloseWithdrawsItsOwnAndNothingElse) {
  start_both();
  const auto me = connector(options_of(ConnectorRole::receiver, "", "shared"));
  const ConnectorMetadata first = start_sender("s1", "shared");
  const ConnectorMetadata other = start_sender("s2", "shared");
  peer->expect_ok(put_by("s1", "a", pattern));
  peer->expect_ok(put_by("s2", "b", pattern));
  peer->expect_ok(Line("connector_close").with("name", "s1"));
  peer->expect_ok(Line("connector_close").with("name", "s1"));
  EXPECT_TRUE(eventually([&] { return peer->command(Line("stats")).number("published") == 1; }));
  EXPECT_EQ(peer->expect_ok(put_by("s1", "a", pattern)).number("put"), 0U);
  EXPECT_EQ(peer->expect_ok(Line("connector_health").with("name", "s1")).number("healthy"), 0U);
  expect_got(poll(*me, "b", other), pattern);
}

TEST_P(ConnectorTest, CleanupInEachForm) {
  start_both();
  const ConnectorMetadata where = start_sender();
  const auto cleanup = [&](Line line) {
    line.verb = "connector_cleanup";
    return peer->expect_ok(line.with("name", "s")).number("found");
  };
  peer->expect_ok(put_by("s", "a", pattern));
  EXPECT_EQ(cleanup(Line().with("key", "a").with("from", "0").with("to", "2")), 0U);
  EXPECT_EQ(cleanup(Line().with("key", "a").with("from", "0").with("to", "1")), 1U);
  peer->expect_ok(put_by("s", "a", pattern));
  EXPECT_EQ(cleanup(Line().with("key", "a")), 1U);
  peer->expect_ok(put_by("s", "a", pattern));
  EXPECT_EQ(cleanup(Line().with("key", "a@0_1")), 1U);
  EXPECT_EQ(cleanup(Line().with("key", "a")), 0U);
  expect_peer_idle(*peer);
}

TEST_P(ConnectorTest, APutIntoAFullPoolIsNoAndAReason) {
  start_both(Line().with("publish_pool_size", "2 MB"));
  start_sender();
  const Pattern most{.seed = 1, .size = 1'500'000, .parts = 1};
  EXPECT_EQ(peer->expect_ok(put_by("s", "a", most)).number("put"), 1U);
  const Line full = peer->expect_ok(put_by("s", "b", most));
  EXPECT_EQ(full.number("put"), 0U);
  EXPECT_EQ(full.number("size"), 0U);
  EXPECT_FALSE(full.has("host"));
  const Line health = peer->expect_ok(Line("connector_health").with("name", "s"));
  EXPECT_EQ(health.number("put_failures"), 1U);
  EXPECT_NE(health.text("last_error").find("pool_exhausted"), std::string::npos);
}

TEST_P(ConnectorTest, RolesAndClosedConnectorsSayNo) {
  start_both();
  const auto me = receiver();
  EXPECT_FALSE(me->put("0", "1", "k", make_payload(pattern)).ok);
  EXPECT_NE(last_log().find("receiver"), std::string::npos);
  EXPECT_FALSE(me->cleanup("k"));
  EXPECT_EQ(me->port(), 0);
  me->close();
  me->close();
  EXPECT_FALSE(me->health().healthy);
  EXPECT_FALSE(me->get("0", "1", "k", std::nullopt).has_value());
  EXPECT_FALSE(me->get_with_deadline("0", "1", "k", std::nullopt, Deadline::in(seconds(1))).has_value());
  EXPECT_FALSE(node->closed()) << "the node goes on";
  const auto other = receiver();
  node->close();
  EXPECT_FALSE(other->health().healthy);
  EXPECT_FALSE(other->put("0", "1", "k", make_payload(pattern)).ok);
}

TEST_P(ConnectorTest, ADualConnectorServesItself) {
  node = start_node();
  ConnectorOptions options = options_of(ConnectorRole::dual, "127.0.0.1");
  options.port =
      GetParam() == Route::shm ? static_cast<std::uint16_t>(29'000 + ::getpid() % 900) : std::uint16_t{0};
  const auto both = connector(options);
  ASSERT_TRUE(both);
  const ConnectorPut put = both->put("0", "1", "k", make_payload(pattern));
  ASSERT_TRUE(put.ok) << last_log();
  expect_got(both->get("0", "1", "k", put.metadata), pattern);
  ConnectorMetadata where;
  where.source_host = both->host();
  where.source_port = both->port();
  EXPECT_FALSE(both->get("0", "1", "k", where).has_value());
}

TEST_P(ConnectorTest, ASenderWithoutSecretNeedsAPort) {
  node = start_node();
  const auto made = Connector::create(node, options_of(ConnectorRole::sender), nullptr);
  EXPECT_EQ(made.ok(), GetParam() != Route::shm);
  if (!made.ok()) {
    EXPECT_EQ(made.error().kind(), ErrorKind::config);
    EXPECT_NE(made.error().message().find("port"), std::string::npos);
  }
}

TEST_P(ConnectorTest, APortInUseIsAnErrorAtOnce) {
  start_both();
  const ConnectorMetadata where = start_sender();
  ConnectorOptions options = options_of(ConnectorRole::sender, where.source_host);
  options.port = where.source_port;
  const auto made = Connector::create(node, options, nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind(), ErrorKind::io) << made.error();
}

}  // namespace
}  // namespace stagewire::test
