// See peer_process.h.
#include "process/support/peer_process.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <stagewire/base/deadline.h>

#include "process/support/far.h"

namespace stagewire::test {

bool eventually(const std::function<bool()>& condition, std::chrono::nanoseconds guard) {
  const Deadline until = Deadline::in(guard);
  while (!condition()) {
    if (until.passed()) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

PeerProcess::PeerProcess(const Far* far) : far_(far) {
  if (far_ != nullptr) {
    pipe_ = far_->start_peer(pid_);
  } else {
    spawn_child();
  }
}

void PeerProcess::spawn_child() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    ADD_FAILURE() << "socketpair failed";
    return;
  }
  pipe_ = Fd(ends[0]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    // Nothing of the test's node may live on in the peer: what is not close-on-exec is a leak of its own.
    constexpr int kPipe = 3;
    if (ends[1] == kPipe) {
      ::fcntl(kPipe, F_SETFD, 0);
    } else {
      ::dup2(ends[1], kPipe);
    }
    ::execl(STAGEWIRE_TEST_PEER, "stagewire_test_peer", nullptr);
    ::_exit(3);
  }
  ::close(ends[1]);
  EXPECT_GT(pid_, 0);
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) kill();
}

void PeerProcess::send(const Line& command) {
  const std::string text = command.to_text() + "\n";
  EXPECT_EQ(::send(pipe_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()))
      << "the peer is gone: " << command.verb;
}

Line PeerProcess::answer() {
  const Deadline until = Deadline::in(kHangGuard);
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      const Line line = Line::parse(std::string_view(received_).substr(0, end));
      received_.erase(0, end + 1);
      return line;
    }
    pollfd wait{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until.left()).count();
    if (left <= 0) return Line("hung");
    if (::poll(&wait, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 4096> chunk{};
    const ssize_t got = ::recv(pipe_.get(), chunk.data(), chunk.size(), 0);
    if (got <= 0) return Line("dead");
    received_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Line PeerProcess::command(const Line& line) {
  send(line);
  return answer();
}

Line PeerProcess::expect_ok(const Line& line) {
  Line result = command(line);
  EXPECT_EQ(result.verb, "ok") << line.to_text() << " was answered: " << result.to_text() << " "
                               << result.text("text");
  return result;
}

void PeerProcess::kill() {
  if (pid_ <= 0) return;
  if (far_ != nullptr) {
    far_->signal(pid_, "KILL");
  } else {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
}

bool PeerProcess::stop() {
  if (far_ != nullptr) return far_->signal(pid_, "STOP");
  ::kill(pid_, SIGSTOP);
  int status = 0;
  return ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
}

void PeerProcess::resume() {
  if (far_ != nullptr) {
    far_->signal(pid_, "CONT");
  } else {
    ::kill(pid_, SIGCONT);
  }
}

bool PeerProcess::wait_for_stop() {
  if (far_ != nullptr) return far_->wait_for_stop(pid_);
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WUNTRACED | WNOHANG) == pid_; })) return false;
  if (WIFSTOPPED(status)) return true;
  pid_ = -1;  // it has ended, and its number may be another's
  return false;
}

bool PeerProcess::wait_for_end() {
  const bool ended = far_ != nullptr
                         ? far_->wait_for_end(pid_)
                         : eventually([this] { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; });
  if (ended) pid_ = -1;
  return ended;
}

}  // namespace stagewire::test
