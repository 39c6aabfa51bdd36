// The close-on-fork table and its atfork handlers. The table is a static array of atomic bits indexed by
// descriptor, because a fork can happen while any thread is in any state: the child may touch only what needs
// no lock.
#include "base/fd.h"

#include <array>
#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace stagewire {

namespace {

// Descriptors above this are not tracked; the kernel's default hard limit for a process is 2^20.
constexpr int kTrackedDescriptors = 1 << 20;
constexpr int kBitsPerWord = 64;

struct ForkTable {
  std::array<std::atomic<std::uint64_t>, kTrackedDescriptors / kBitsPerWord> words{};
  std::atomic<std::uint64_t> epoch{1};
  std::atomic<int> highest{-1};
};

ForkTable table;

void close_in_child() noexcept {
  table.epoch.fetch_add(1, std::memory_order_relaxed);
  const int highest = table.highest.load(std::memory_order_relaxed);
  for (int word = 0; word <= highest / kBitsPerWord; ++word) {
    std::uint64_t bits = table.words[static_cast<std::size_t>(word)].exchange(0, std::memory_order_relaxed);
    for (int bit = 0; bits != 0; ++bit, bits >>= 1U) {
      if ((bits & 1U) != 0) ::close(word * kBitsPerWord + bit);
    }
  }
}

void install_handlers() noexcept {
  static const int installed = ::pthread_atfork(nullptr, nullptr, &close_in_child);
  static_cast<void>(installed);
}

}  // namespace

void mark_close_on_fork(int fd) noexcept {
  install_handlers();
  if (fd < 0 || fd >= kTrackedDescriptors) return;
  int highest = table.highest.load(std::memory_order_relaxed);
  while (fd > highest && !table.highest.compare_exchange_weak(highest, fd)) {
  }
  table.words[static_cast<std::size_t>(fd / kBitsPerWord)].fetch_or(
      1ULL << static_cast<unsigned>(fd % kBitsPerWord));
}

void unmark_close_on_fork(int fd) noexcept {
  if (fd < 0 || fd >= kTrackedDescriptors) return;
  table.words[static_cast<std::size_t>(fd / kBitsPerWord)].fetch_and(
      ~(1ULL << static_cast<unsigned>(fd % kBitsPerWord)));
}

std::uint64_t fork_epoch() noexcept {
  install_handlers();  // a process may fork before it has owned its first descriptor
  return table.epoch.load(std::memory_order_relaxed);
}

Status ForkGuard::check() const {
  if (!forked()) return {};
  return Error(ErrorKind::forked,
               "this handle belongs to the parent process; a forked child must create its own node");
}

void Fd::reset() noexcept {
  const int fd = release();
  if (fd >= 0) ::close(fd);
}

int Fd::release() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || made_in_.forked()) return -1;
  unmark_close_on_fork(fd);
  return fd;
}

}  // namespace stagewire
