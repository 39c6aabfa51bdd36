// Fd and fork: ownership, and what a forked child sees and must leave alone.
#include "base/fd.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stagewire/base/deadline.h>

#include "base/oneshot.h"

namespace stagewire {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

int open_null() {
  return ::open("/dev/null", O_RDWR | O_CLOEXEC);
}

// Runs `check` in a forked child and returns its exit status; 0 is success. The child leaves by _exit, so
// that nothing of the test framework runs in it.
template <typename Check>
int in_child(const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(FdTest, ClosesWhatItOwns) {
  const int raw = open_null();
  ASSERT_GE(raw, 0);
  {
    const Fd fd(raw);
    EXPECT_TRUE(fd);
    EXPECT_EQ(fd.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(FdTest, AnEmptyOneDoesNothing) {
  Fd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
  fd.reset();
  EXPECT_EQ(fd.release(), -1);
  const Fd failed(-1);
  EXPECT_FALSE(failed);
}

TEST(FdTest, MovesOwnership) {
  const int first = open_null();
  const int second = open_null();
  Fd a(first);
  Fd b(std::move(a));
  EXPECT_EQ(b.get(), first);
  Fd c(second);
  c = std::move(b);
  EXPECT_EQ(c.get(), first);
  EXPECT_FALSE(is_open(second));
  EXPECT_TRUE(is_open(first));
  c.reset();
  c.reset();
  EXPECT_FALSE(is_open(first));
}

TEST(FdTest, ReleaseGivesItAway) {
  const int raw = open_null();
  {
    Fd fd(raw);
    EXPECT_EQ(fd.release(), raw);
    EXPECT_FALSE(fd);
  }
  EXPECT_TRUE(is_open(raw));
  EXPECT_EQ(in_child([&] { return is_open(raw) ? 0 : 1; }), 0);
  EXPECT_EQ(::close(raw), 0);
}

TEST(ForkTest, AChildFindsTheDescriptorClosedAndTheParentKeepsIt) {
  const Fd fd(open_null());
  const Fd high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 300));
  ASSERT_GE(high.get(), 300);
  const int inherited = ::dup(fd.get());
  EXPECT_EQ(in_child([&] {
              if (is_open(fd.get()) || is_open(high.get())) return 1;
              return is_open(inherited) ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(is_open(fd.get()));
  EXPECT_TRUE(is_open(high.get()));
  ::close(inherited);
}

TEST(ForkTest, AGuardTellsTheChildFromTheParent) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.forked());
  EXPECT_TRUE(guard.check());
  EXPECT_EQ(in_child([&] {
              if (!guard.forked()) return 1;
              const Status status = guard.check();
              if (status || status.error().kind() != ErrorKind::forked) return 2;
              const ForkGuard own;
              return own.forked() ? 3 : 0;
            }),
            0);
  EXPECT_FALSE(guard.forked());
  EXPECT_TRUE(guard.check());
}

TEST(ForkTest, AGrandchildIsForkedFromBoth) {
  const ForkGuard guard;
  EXPECT_EQ(in_child([&] {
              const ForkGuard own;
              const Fd fd(open_null());
              return in_child([&] { return guard.forked() && own.forked() && !is_open(fd.get()) ? 0 : 1; });
            }),
            0);
}

TEST(ForkTest, AParentsFdDestroyedInTheChildLeavesTheChildsFilesAlone) {
  Fd parents(open_null());
  const int number = parents.get();
  EXPECT_EQ(in_child([&] {
              // The lowest free number is the one that the parent's had.
              const Fd childs(open_null());
              if (childs.get() != number) return 1;
              parents.reset();
              if (!is_open(number)) return 2;
              if (parents.get() != -1) return 3;
              Fd moved(std::move(parents));
              return moved.release() == -1 ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(is_open(number));
}

TEST(ForkTest, AnOneshotsEndsDestroyedInTheChildWriteNowhere) {
  auto pair = Oneshot<int>::make();
  const int number = pair.future.event_fd().value();
  EXPECT_EQ(in_child([&] {
              const int own = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
              if (own != number) return 1;
              if (pair.future.event_fd().error().kind() != ErrorKind::forked) return 2;
              if (pair.future.wait(Deadline::in(std::chrono::hours(1))).error().kind() != ErrorKind::forked)
                return 3;
              pair.promise = {};
              std::uint64_t count = 0;
              return ::read(own, &count, sizeof(count)) < 0 && errno == EAGAIN ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(pair.promise.set(1));
  EXPECT_EQ(pair.future.try_take(), 1);
}

}  // namespace
}  // namespace stagewire
