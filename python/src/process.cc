// See process.h.
#include "process.h"

#include <algorithm>
#include <atomic>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "releases.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

// How long the end of the process waits for calls to come back. They do so as soon as their node is closed,
// which itself takes at most the abort grace.
constexpr std::chrono::seconds kLongestExitWait{10};

struct ProcessState {
  bool ending = false;                     // under the interpreter lock
  std::vector<std::weak_ptr<Node>> nodes;  // under the interpreter lock
  std::atomic<int> inside{0};              // calls in the extension
  std::atomic<bool> gone{false};           // the end of the process waits no longer
};

// Whether this thread runs close_process(), and what comes after it.
thread_local bool t_ends_process = false;

[[noreturn]] void stay() {
  while (true) ::pause();
}

ProcessState& process() {
  static ProcessState state;
  return state;
}

}  // namespace

Entered::Entered() {
  if (process().ending && !t_ends_process) {
    static_cast<void>(PyEval_SaveThread());
    stay();
  }
  process().inside.fetch_add(1, std::memory_order_relaxed);
}

Entered::~Entered() {
  process().inside.fetch_sub(1, std::memory_order_release);
}

Unlocked::Unlocked() : state_(process().ending ? nullptr : PyEval_SaveThread()) {}

Unlocked::~Unlocked() {
  if (state_ == nullptr) return;
  if (process().gone.load(std::memory_order_acquire)) stay();
  PyEval_RestoreThread(state_);
}

bool process_ending() {
  return process().ending;
}

void close_at_exit(const std::shared_ptr<Node>& node) {
  auto& nodes = process().nodes;
  std::erase_if(nodes, [](const std::weak_ptr<Node>& known) { return known.expired(); });
  nodes.push_back(node);
}

void close_process() {
  ProcessState& state = process();
  state.ending = true;
  t_ends_process = true;
  std::vector<std::shared_ptr<Node>> open;
  for (const auto& known : state.nodes) {
    if (auto node = known.lock()) open.push_back(std::move(node));
  }
  state.nodes.clear();
  wake_reaper();
  // Not Unlocked: that keeps the lock from here on, and does not count this thread.
  PyThreadState* const saved = PyEval_SaveThread();
  for (const auto& node : open) node->close();
  open.clear();
  const Deadline limit = Deadline::in(kLongestExitWait);
  // Each step lets the threads that come back take the lock.
  while (state.inside.load(std::memory_order_acquire) > 0 && !limit.passed()) ::usleep(1000);
  state.gone.store(true, std::memory_order_release);
  PyEval_RestoreThread(saved);
  drain_releases();
}

void forget_after_fork() {
  process().inside.store(0, std::memory_order_relaxed);
  process().nodes.clear();
}

bool on_main_thread() {
  struct Known {
    std::uint64_t epoch = 0;
    bool known = false;
    bool main = false;
  };
  static thread_local Known cached;
  // In a forked child the thread that forked is the main one.
  if (!cached.known || cached.epoch != fork_epoch()) {
    cached = {.epoch = fork_epoch(), .known = true, .main = ::syscall(SYS_gettid) == ::getpid()};
  }
  return cached.main;
}

void run_signal_handlers() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace stagewire::python
