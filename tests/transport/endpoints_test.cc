// What data connections are set to.
#include "transport/tcp/endpoints.h"

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

#include "transport/tcp/tcp_options.h"

namespace stagewire::testing_support {
namespace {

std::string congestion_of(int fd) {
  std::array<char, 32> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return {name.data()};
}

Fd unconnected(int family = AF_INET) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Both ends of a connection over loopback; empty where this host has no such address.
std::pair<Fd, Fd> connected(int family) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (family == AF_INET) {
    auto& own = reinterpret_cast<sockaddr_in&>(address);
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(own);
  } else {
    auto& own = reinterpret_cast<sockaddr_in6&>(address);
    own.sin6_family = AF_INET6;
    own.sin6_addr = in6addr_loopback;
    size = sizeof(own);
  }
  const Fd listener = unconnected(family);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Fd client = unconnected(family);
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  return {std::move(client), Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(ConfigureSocket, DoesNotPaceWhatStaysOnThisHost) {
  for (const int family : {AF_INET, AF_INET6}) {
    const auto [client, server] = connected(family);
    if (!client) continue;  // no IPv6 here
    for (const Fd* end : {&client, &server}) {
      const Status configured = configure_socket(end->get(), TcpOptions());
      ASSERT_TRUE(configured.ok()) << configured.error();
      EXPECT_EQ(congestion_of(end->get()), "reno");
    }
  }
}

TEST(ConfigureSocket, LeavesOthersToTheSystem) {
  const Fd fd = unconnected();
  const std::string before = congestion_of(fd.get());
  ASSERT_TRUE(configure_socket(fd.get(), TcpOptions()).ok());
  EXPECT_EQ(congestion_of(fd.get()), before);
}

TEST(ConfigureSocket, TakesTheAlgorithmThatIsNamed) {
  const auto [client, server] = connected(AF_INET);
  TcpOptions options;
  options.congestion_control = congestion_of(unconnected().get());
  ASSERT_TRUE(configure_socket(server.get(), options).ok());
  EXPECT_EQ(congestion_of(server.get()), options.congestion_control);
  options.congestion_control = "nonsense";
  const Status refused = configure_socket(server.get(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::config);
}

}  // namespace
}  // namespace stagewire::testing_support
