// See far.h.
#include "process/support/far.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include "process/support/peer_process.h"
#include "process/support/process_state.h"

namespace stagewire::test {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Fd connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return Fd();
  Fd socket(::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0));
  const bool connected = ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_PRIORITY, &kPipePriority, sizeof kPipePriority);
  return connected ? std::move(socket) : Fd();
}

// One line, byte by byte: what follows belongs to the peer.
std::string read_line(int socket) {
  std::string line;
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  for (;;) {
    char byte = 0;
    if (::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kHangGuard).count())) <= 0)
      return "error no answer";
    if (::recv(socket, &byte, 1, 0) != 1) return "error closed";
    if (byte == '\n') return line;
    line += byte;
  }
}

}  // namespace

const Far* Far::get() {
  static const std::unique_ptr<const Far> kFar = []() -> std::unique_ptr<const Far> {
    std::istringstream words(variable("STAGEWIRE_TEST_FAR"));
    std::unique_ptr<Far> far(new Far());
    std::string control;
    if (!(words >> control >> far->own_ >> far->peer_)) return nullptr;
    const std::size_t colon = control.rfind(':');
    if (colon == std::string::npos) return nullptr;
    far->control_host_ = control.substr(0, colon);
    far->control_port_ = control.substr(colon + 1);
    return far;
  }();
  return kFar.get();
}

Fd Far::open(const std::string& request, std::string& answer) const {
  Fd socket = connect_to(control_host_, control_port_);
  EXPECT_TRUE(socket) << "the other machine does not answer at " << control_host_ << ":" << control_port_;
  const std::string line = request + "\n";
  if (!socket || ::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) {
    answer = "error not sent";
    return socket;
  }
  answer = read_line(socket.get());
  return socket;
}

bool Far::done(const std::string& request) const {
  std::string answer;
  open(request, answer);
  EXPECT_EQ(answer, "ok") << request;
  return answer == "ok";
}

Fd Far::start_peer(pid_t& pid) const {
  std::string answer;
  Fd socket = open("peer", answer);
  EXPECT_EQ(answer.rfind("ok ", 0), 0U) << answer;
  pid = static_cast<pid_t>(std::atoi(answer.c_str() + std::min<std::size_t>(3, answer.size())));
  return socket;
}

bool Far::signal(pid_t pid, const std::string& name) const {
  return done("signal " + std::to_string(pid) + " " + name);
}

bool Far::wait_for_stop(pid_t pid) const {
  return done("stopped " + std::to_string(pid));
}

bool Far::wait_for_end(pid_t pid) const {
  return done("ended " + std::to_string(pid));
}

void Far::fault_there(const std::string& words) const {
  done("fault " + words);
}

void Far::fault_here(const std::string& words) const {
  const std::string command = variable("STAGEWIRE_TEST_FAULT") + " " + words;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

// A file of the folder that the machines share with their host (scripts/rxe/guests).
void Far::request(const std::string& text) const {
  static int number = 0;
  const std::filesystem::path folder = variable("STAGEWIRE_TEST_GUESTS");
  const std::string name = std::to_string(::getpid()) + "." + std::to_string(number++);
  std::ofstream(folder / ("new." + name)) << text;
  std::error_code failed;
  std::filesystem::rename(folder / ("new." + name), folder / ("request." + name), failed);
  EXPECT_FALSE(failed) << failed.message();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder / ("done." + name)); })) << text;
}

}  // namespace stagewire::test
