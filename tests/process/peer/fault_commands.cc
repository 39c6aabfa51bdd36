// What the peer does to itself when told: end or stop at a fault point, break its sockets, run out of
// descriptors, fork, dial from many threads, put and get from many threads. See peer.h.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "process/peer/peer.h"
#include "process/support/process_state.h"
#include "process/support/stress.h"

namespace stagewire::test {

namespace {

// Fills the table of descriptors to the last one, so that it is full whatever this process inherited.
Line fill_files(Peer& peer, const Line& /*line*/) {
  constexpr rlim_t kFew = 1024;  // filled in no time, whatever the limit was
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  peer.limit_of_files = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_cur, kFew);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return Line("error").with("text", Error::from_errno(errno, "setrlimit").to_string());
  for (;;) {
    Fd filler(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!filler) break;
    peer.fillers.push_back(std::move(filler));
  }
  return errno == EMFILE ? Line("ok").with("filled", peer.fillers.size())
                         : Line("error").with("text", Error::from_errno(errno, "open /dev/null").to_string());
}

Line free_files(Peer& peer, const Line& /*line*/) {
  peer.fillers.clear();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = peer.limit_of_files;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0
             ? Line("ok")
             : Line("error").with("text", Error::from_errno(errno, "setrlimit").to_string());
}

Line cpu_time(Peer& /*peer*/, const Line& /*line*/) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto micros = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
  };
  return Line("ok").with("us", micros(usage.ru_utime) + micros(usage.ru_stime));
}

// A child that lives on when this process is killed; the test ends it.
Line fork_child(Peer& /*peer*/, const Line& /*line*/) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, 0);
    ::close(3);
    for (;;) ::pause();
  }
  return child > 0 ? Line("ok").with("pid", static_cast<std::uint64_t>(child)) : Line("error");
}

// Uses every handle in a forked child; the child's exit status names the first that did not answer `forked`.
Line use_in_child(Peer& peer, const Line& line) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto forked = [](const auto& result) {
      return !result.ok() && result.error().kind() == ErrorKind::forked;
    };
    GetOptions options(Deadline::in(std::chrono::seconds(1)));
    const Source source = Source::at(line.text("address"), key_named("k"));
    if (!forked(peer.node->put(key_named("k"), make_payload({.seed = 1, .size = 1000, .parts = 1}))))
      ::_exit(1);
    if (!forked(peer.node->get(source, options))) ::_exit(2);
    if (!forked(peer.node->listen("127.0.0.1:0"))) ::_exit(3);
    if (!forked(peer.node->publish_pool()->allocate(10, "x", Deadline::now()))) ::_exit(4);
    if (peer.node->withdraw(key_named("k"))) ::_exit(5);
    if (peer.node->stats().published != 0) ::_exit(6);
    if (!forked(peer.node->get_async(source, options).take())) ::_exit(7);
    peer.node->connect(line.text("address"));
    static_cast<void>(peer.node->explain());
    static_cast<void>(peer.node->metrics_text());
    peer.node->close();
    peer.gets.clear();
    peer.connectors.clear();
    peer.node.reset();
    ::_exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return Line("error").with("text", "waitpid failed");
  if (!WIFEXITED(status))
    return Line("error").with("text", "the child died of signal " + std::to_string(WTERMSIG(status)));
  return Line("ok").with("status", static_cast<std::uint64_t>(WEXITSTATUS(status)));
}

// Dials an address from many threads at once, as gets of a key that is not there.
Line dial_at_once(Peer& peer, const Line& line) {
  const Source source = Source::at(line.text("address"), key_named("nobody publishes this"));
  std::atomic<std::uint64_t> answered{0};
  std::string problem;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < line.number("threads", 1); ++i) {
    threads.emplace_back([&] {
      GetOptions options(Deadline::in(std::chrono::seconds(30)));
      options.wait = false;
      const Result<Got> got = peer.node->get(source, std::move(options));
      if (!got.ok() && got.error().kind() == ErrorKind::not_found) {
        ++answered;
      } else {
        const std::lock_guard lock(mutex);
        problem = got.ok() ? "found" : got.error().to_string();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return Line("ok").with("answered", answered.load()).with("problem", problem);
}

Line stress(Peer& peer, const Line& line) {
  const StressResult result = run_stress(*peer.node, {.other = line.text("address"),
                                                      .own_prefix = line.text("own"),
                                                      .other_prefix = line.text("others"),
                                                      .threads = line.number("threads"),
                                                      .rounds = line.number("rounds")});
  return Line("ok").with("good", result.good).with("problem", result.problem);
}

Line arm(Peer& peer, const Line& line) {
  peer.trigger.arm(line.text("point"), line.text("signal") == "stop" ? SIGSTOP : SIGKILL);
  return Line("ok");
}

}  // namespace

void add_fault_commands(Commands& commands) {
  commands["arm"] = arm;
  commands["fill_files"] = fill_files;
  commands["free_files"] = free_files;
  commands["cpu_time"] = cpu_time;
  commands["fork_child"] = fork_child;
  commands["use_in_child"] = use_in_child;
  commands["dial_at_once"] = dial_at_once;
  commands["stress"] = stress;
  commands["break"] = [](Peer& /*peer*/, const Line& /*line*/) {
    return Line("ok").with("count", std::uint64_t{break_session_sockets()});
  };
}

}  // namespace stagewire::test
