// The fixture of the process tests: a node in this process, one in a peer process, over each route. The peer
// is on this machine or, when the environment names one, on another (far.h). Header only; the test's thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <stagewire/node/node.h>

#include "base/fd.h"
#include "process/support/fake_rdma.h"
#include "process/support/far.h"
#include "process/support/pattern.h"
#include "process/support/peer_process.h"
#include "process/support/process_state.h"

namespace stagewire::test {

/// How the two nodes are joined.
enum class Route : std::uint8_t {
  shm,         ///< Unix session, no secret, shm reads
  tcp,         ///< Unix session, secret, tcp reads
  insecure,    ///< the same without a secret, on request
  net,         ///< TCP session and tcp reads, as between two hosts: leases end by the clock
  net6,        ///< the same over IPv6
  fake_verbs,  ///< TCP session and verbs reads, each process with a fake device of its own (fake_rdma.h)
  verbs,       ///< TCP session and verbs reads, both processes on the device STAGEWIRE_TEST_RDMA_DEVICE names
  far_tcp,     ///< the peer is on another machine; tcp reads
  far_verbs    ///< the peer is on another machine; verbs reads
};
inline std::string name_of(Route route) {
  switch (route) {
    case Route::shm:
      return "shm";
    case Route::tcp:
      return "tcp";
    case Route::insecure:
      return "insecure";
    case Route::net:
      return "net";
    case Route::net6:
      return "net6";
    case Route::fake_verbs:
      return "fake_verbs";
    case Route::verbs:
      return "verbs";
    case Route::far_tcp:
      return "far_tcp";
    case Route::far_verbs:
      return "far_verbs";
  }
  return "";
}
inline bool is_far(Route route) {
  return route == Route::far_tcp || route == Route::far_verbs;
}
inline bool is_verbs(Route route) {
  return route == Route::fake_verbs || route == Route::verbs || route == Route::far_verbs;
}
/// Whether the two nodes take each other for processes of two hosts.
inline bool between_hosts(Route route) {
  return route == Route::net || route == Route::net6 || is_verbs(route) || is_far(route);
}
/// The transport of a read over it.
inline std::string transport_of(Route route) {
  return route == Route::shm ? "shm" : is_verbs(route) ? "verbs" : "tcp";
}
/// The RDMA device that tests may use; "" if there is none.
inline std::string rdma_device() {
  const char* name = std::getenv("STAGEWIRE_TEST_RDMA_DEVICE");
  return name == nullptr ? "" : name;
}

inline constexpr std::uint64_t kMegabyte = 1'000'000;

class TwoNodes : public ::testing::TestWithParam<Route> {
 protected:
  void SetUp() override {
    names_before_ = left_behind_names();
    std::thread([] {}).join();  // with the first one a sanitizer starts one of its own
    threads_before_ = running_threads();
    descriptors_before_ = open_descriptors();
    socket_dir_ = "/tmp/stagewire-test-" + std::to_string(::getpid());
    if (GetParam() == Route::net6 && !has_ipv6()) GTEST_SKIP() << "this host has no IPv6 loopback address";
    const bool fake = GetParam() == Route::fake_verbs;
    if (fake && !FakeRdma::obstacle().empty()) GTEST_SKIP() << FakeRdma::obstacle();
    if (between_hosts(GetParam())) std::filesystem::create_directories(socket_dir_);
    if (fake) rdma_ = std::make_unique<FakeRdma>(fabric(), next_rdma_number_++);
  }
  void TearDown() override {
    node.reset();
    peer.reset();
    second.reset();
    if (rdma_) {
      EXPECT_EQ(rdma_->leaks(), "");
    }
    rdma_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(socket_dir_, ignored);
    EXPECT_EQ(left_behind_names(), names_before_);
    EXPECT_TRUE(eventually([this] { return running_threads() <= threads_before_; }, std::chrono::seconds(10)))
        << running_threads() << " threads run, " << threads_before_ << " did before";
    EXPECT_LE(open_descriptors(), descriptors_before_);
  }

  /// The options both nodes share; `extra` wins.
  Line options(const Line& extra = Line()) const {
    Line line("start");
    line.with("log_level", "off").with("touch_pools", "false");
    line.with("publish_pool_size", "600 MB").with("receive_pool_size", "600 MB");
    if (slow()) line.with("publish_pool_size", "150 MB").with("receive_pool_size", "150 MB");
    switch (GetParam()) {
      case Route::shm:
        // Found by name, since nothing listens on TCP.
        break;
      case Route::tcp:
        line.with("secret", std::string(kSecret)).with("routes", "tcp");
        break;
      case Route::insecure:
        line.with("insecure", "true").with("routes", "tcp");
        break;
      case Route::net:
      case Route::net6:
      case Route::fake_verbs:
      case Route::verbs:
      case Route::far_tcp:
      case Route::far_verbs:
        if (GetParam() == Route::net6) line.with("listen", "[::1]:0");
        line.with("secret", std::string(kSecret)).with("socket_dir", socket_dir_);
        line.with("routes", transport_of(GetParam()));
        if (is_verbs(GetParam())) line.with("rdma_device", rdma_ ? FakeRdma::kDevice : rdma_device());
        // Long enough for a loaded machine, short enough to wait for.
        line.with("heartbeat", "100 ms").with("lease", "3 s");
        break;
    }
    for (const auto& [name, value] : extra.values) line.values[name] = value;
    return line;
  }

  /// Reads go through a device that is emulated, and what it may reach is locked memory.
  static bool slow() { return is_far(GetParam()) || GetParam() == Route::verbs; }
  /// Bytes that take a while to read, whatever the route.
  static std::uint64_t large_size(std::uint64_t bytes) {
    return slow() ? bytes / 10 : GetParam() == Route::fake_verbs ? bytes / 2 : bytes;
  }

  std::shared_ptr<Node> start_node(const Line& extra = Line()) {
    NodeConfig config;
    Line wanted = options();
    if (is_far(GetParam())) wanted.with("listen", Far::get()->own_address() + ":0");
    for (const auto& [name, value] : extra.values) wanted.values[name] = value;
    for (const auto& [name, value] : wanted.values) {
      const Status set = set_option(config, name, value);
      EXPECT_TRUE(set.ok()) << set.error();
    }
    Result<std::shared_ptr<Node>> made =
        rdma_ ? rdma_->create_node(std::move(config)) : Node::create(std::move(config));
    if (!made.ok()) {
      ADD_FAILURE() << made.error();
      std::abort();
    }
    forget_unix_sockets();
    return std::move(made).value();
  }
  /// Starts a peer's node; gives the address under which it is found.
  std::string start_peer(PeerProcess& which, const Line& extra = Line()) {
    Line wanted = options();
    // There the socket directory of this process does not exist, and nothing is to be found by it anyway.
    if (is_far(GetParam())) wanted.with("listen", peer_host() + ":0").values.erase("socket_dir");
    if (rdma_) wanted.with(FakeRdma::kFabric, fabric()).with(FakeRdma::kNumber, next_rdma_number_++);
    for (const auto& [name, value] : extra.values) wanted.values[name] = value;
    const Line started = which.expect_ok(wanted);
    forget_unix_sockets();
    return started.text("address");
  }
  /// Where a peer's node listens.
  static std::string peer_host() { return is_far(GetParam()) ? Far::get()->peer_address() : "127.0.0.1"; }
  static std::unique_ptr<PeerProcess> new_peer() {
    return std::make_unique<PeerProcess>(is_far(GetParam()) ? Far::get() : nullptr);
  }
  void start_both(const Line& extra = Line()) {
    node = start_node(extra);
    peer = new_peer();
    peer_address = start_peer(*peer, extra);
    address = node->addresses().front();
  }

  // Puts and gets of this side.
  Result<Ticket> put(const std::string& key, const Pattern& pattern, PutOptions how = {}) {
    return node->put(key_named(key), make_payload(pattern), std::move(how));
  }
  static GetOptions by(std::chrono::nanoseconds timeout, Placement placement = Placement::copy) {
    GetOptions how(Deadline::in(timeout));
    how.placement = placement;
    return how;
  }
  Source from_peer(const std::string& key) const { return Source::at(peer_address, key_named(key)); }
  static Source of_ticket(const Line& answer) {
    Result<Ticket> ticket = Ticket::parse(answer.text("ticket"));
    EXPECT_TRUE(ticket.ok());
    return ticket.ok() ? Source::of(*ticket) : Source();
  }
  static void expect_whole(const Result<Got>& got, const Pattern& pattern) {
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_EQ(mismatch(got->payload, pattern), "");
  }
  static void expect_kind(const Result<Got>& got, const std::set<ErrorKind>& kinds) {
    ASSERT_FALSE(got.ok()) << "it succeeded over " << got->transport;
    EXPECT_EQ(kinds.count(got.error().kind()), 1U) << got.error();
    EXPECT_FALSE(got.error().operation().empty()) << got.error();
    EXPECT_FALSE(got.error().key().empty()) << got.error();
  }

  /// Lets time pass that nothing else here needs: a get of a key that this node does not have.
  void pass(std::chrono::nanoseconds time) {
    expect_kind(node->get(Source::at(node->addresses().back(), key_named("nothing")), by(time)),
                {ErrorKind::deadline_exceeded});
  }

  // The peer's.
  static Line put_command(const std::string& key, const Pattern& pattern) {
    return Line("put")
        .with("key", key)
        .with("seed", pattern.seed)
        .with("size", pattern.size)
        .with("parts", pattern.parts);
  }
  Line get_command(const std::string& name, const std::string& key,
                   const std::string& placement = "copy") const {
    return Line("get")
        .with("name", name)
        .with("address", address)
        .with("key", key)
        .with("placement", placement);
  }
  static Line wait_command(const std::string& name, const Pattern& pattern) {
    return Line("wait")
        .with("name", name)
        .with("seed", pattern.seed)
        .with("size", pattern.size)
        .with("parts", pattern.parts)
        .with("deadline", std::uint64_t{50'000});
  }

  /// Everything this node held for others has come back.
  void expect_idle(bool published_too = true) {
    EXPECT_TRUE(eventually([&] {
      const NodeStats now = node->stats();
      return now.leases == 0 && now.waiting_claims == 0 && now.running_gets == 0 && now.views == 0 &&
             now.quarantined == 0 && now.receive_pool.used == 0 &&
             (!published_too || (now.published == 0 && now.publish_pool.used == 0));
    })) << state();
    EXPECT_EQ(node->publish_pool()->stats().bad_releases, 0U);
    EXPECT_EQ(node->receive_pool()->stats().bad_releases, 0U);
  }
  void expect_peer_idle(PeerProcess& which) {
    Line now;
    EXPECT_TRUE(eventually([&] {
      now = which.command(Line("stats"));
      for (const char* name : {"published", "leases", "waiting", "gets", "views", "quarantined",
                               "published_bytes", "received_bytes", "bad_releases"}) {
        if (now.number(name, 1) != 0) return false;
      }
      return true;
    })) << now.to_text();
  }
  std::string state() const {
    const NodeStats now = node->stats();
    return "published " + std::to_string(now.published) + ", leases " + std::to_string(now.leases) +
           ", waiting " + std::to_string(now.waiting_claims) + ", gets " + std::to_string(now.running_gets) +
           ", views " + std::to_string(now.views) + ", quarantined " + std::to_string(now.quarantined) +
           ", sent pool " + std::to_string(now.publish_pool.used) + ", receive pool " +
           std::to_string(now.receive_pool.used);
  }

  static constexpr const char* kSecret = "8f1d0c5b7a2e49631e7d4b90a6c8f35227bb914d6e03c5fa8812d79e40ab6cf1";
  std::shared_ptr<Node> node;
  std::unique_ptr<PeerProcess> peer;
  std::unique_ptr<PeerProcess> second;
  std::string address;
  std::string peer_address;

 private:
  static bool has_ipv6() {
    const Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback)) == 0;
  }

  // Without its Unix sockets a node is found over TCP alone, as from another host.
  void forget_unix_sockets() const {
    if (!between_hosts(GetParam())) return;
    for (const auto& entry : std::filesystem::directory_iterator(socket_dir_)) {
      if (entry.is_socket()) std::filesystem::remove(entry.path());
    }
  }
  std::string fabric() const { return socket_dir_ + "/fabric"; }

  std::string socket_dir_;
  std::unique_ptr<FakeRdma> rdma_;
  std::uint64_t next_rdma_number_ = 1;
  std::set<std::string> names_before_;
  std::size_t threads_before_ = 0;
  std::size_t descriptors_before_ = 0;
};

inline std::string route_name(const ::testing::TestParamInfo<Route>& info) {
  return name_of(info.param);
}
/// The routes to another machine that the environment offers.
inline std::vector<Route> far_verbs_routes() {
  return Far::get() != nullptr && !rdma_device().empty() ? std::vector{Route::far_verbs}
                                                         : std::vector<Route>();
}
inline std::vector<Route> far_routes() {
  std::vector<Route> routes = far_verbs_routes();
  if (Far::get() != nullptr) routes.push_back(Route::far_tcp);
  return routes;
}
/// These routes, one over fake devices, and one over the device of the environment. With another machine it
/// is about that alone.
inline std::vector<Route> routes_here(std::vector<Route> routes) {
  if (Far::get() != nullptr) return far_routes();
  routes.push_back(Route::fake_verbs);
  if (!rdma_device().empty()) routes.push_back(Route::verbs);
  return routes;
}
inline const auto kAllRoutes =
    ::testing::ValuesIn(routes_here({Route::shm, Route::tcp, Route::insecure, Route::net, Route::net6}));
inline const auto kMainRoutes = ::testing::ValuesIn(routes_here({Route::shm, Route::tcp, Route::net}));

}  // namespace stagewire::test
