// Sealed memory as its maker and as a peer see it: nothing a peer can do with the descriptor gives it a way
// to write, and nothing that is not exactly what was promised is mapped.
#include "memory/memfd.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/forked_child.h"

namespace stagewire {
namespace {

using testing::HasSubstr;

constexpr std::size_t kSize = std::size_t{64} << 10U;

Fd make_memfd(std::uint64_t size, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

Fd duplicate(const Fd& fd) {
  return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
}

SealedMemory make_sealed(std::uint64_t size = kSize) {
  auto memory = create_sealed("test", size, false);
  EXPECT_TRUE(memory.ok());
  return std::move(memory).value();
}

TEST(CreateSealed, RoundsUpMapsAndSeals) {
  const SealedMemory memory = make_sealed(kSize - 5);
  EXPECT_EQ(memory.mapping.size(), kSize);
  EXPECT_EQ(memory.page_size, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(::fcntl(memory.fd.get(), F_GET_SEALS) & required_seals(), required_seals());
  EXPECT_NE(::fcntl(memory.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  std::memset(memory.mapping.data(), 0x5a, memory.mapping.size());
  EXPECT_EQ(memory.mapping.data()[kSize - 1], std::byte{0x5a});
}

TEST(CreateSealed, RefusesSizesOutOfBounds) {
  for (const std::uint64_t size : {std::uint64_t{0}, kMaxMemorySize + 1, ~std::uint64_t{0}}) {
    const auto memory = create_sealed("test", size, false);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(memory.error().message(), HasSubstr(std::to_string(size)));
  }
}

TEST(CreateSealed, TakesALongName) {
  EXPECT_TRUE(create_sealed(std::string(1000, 'n'), kSize, false).ok());
}

TEST(CreateSealed, HugePagesAreReportedOrReplaced) {
  // Whether the machine has hugetlb pages to give is not this test's to decide; what was obtained must be
  // said.
  const auto memory = create_sealed("test", kSize, true);
  ASSERT_TRUE(memory.ok());
  const auto base_page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_GE(memory->page_size, base_page);
  EXPECT_EQ(memory->mapping.size() % memory->page_size, 0U);
  EXPECT_EQ(::fcntl(memory->fd.get(), F_GET_SEALS) & required_seals(), required_seals());
  std::memset(memory->mapping.data(), 1, memory->mapping.size());
  const auto imported = import_sealed(duplicate(memory->fd), memory->mapping.size(), false);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(std::memcmp(imported->mapping.data(), memory->mapping.data(), memory->mapping.size()), 0);
}

TEST(SealedMemory, CannotBeChangedThroughItsDescriptor) {
  const SealedMemory memory = make_sealed();
  const int fd = memory.fd.get();
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(2 * kSize)), -1);
  EXPECT_EQ(::write(fd, "x", 1), -1);
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

// What a peer tries with the descriptor it was given. Returns 0 if everything was refused.
int attack(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int reopened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  for (const int each : {fd, reopened}) {
    if (each < 0) continue;
    if (::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, each, 0) != MAP_FAILED) return 1;
    if (::mmap(nullptr, kSize, PROT_WRITE, MAP_SHARED, each, 0) != MAP_FAILED) return 2;
    if (::pwrite(each, "x", 1, 0) >= 0) return 3;
    if (::ftruncate(each, 0) == 0) return 4;
    if (::fallocate(each, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) return 5;
    void* readable = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, each, 0);
    if (readable == MAP_FAILED) return 6;
    if (::mprotect(readable, kSize, PROT_READ | PROT_WRITE) == 0) return 7;
  }
  return 0;
}

TEST(SealedMemory, GivesAnotherProcessNoWayToWrite) {
  const SealedMemory memory = make_sealed();
  memory.mapping.data()[0] = std::byte{7};
  // A plain duplicate, which the fork handler does not know of: as if received over a socket.
  const int passed = ::fcntl(memory.fd.get(), F_DUPFD_CLOEXEC, 0);
  ASSERT_GE(passed, 0);
  EXPECT_EQ(test::run_in_child([passed] { return attack(passed); }), 0);
  EXPECT_EQ(memory.mapping.data()[0], std::byte{7});
  ::close(passed);
}

TEST(ImportSealed, ShowsWhatTheOwnerWritesLater) {
  const SealedMemory memory = make_sealed();
  const int passed = ::fcntl(memory.fd.get(), F_DUPFD_CLOEXEC, 0);
  ASSERT_GE(passed, 0);
  int to_child[2];
  ASSERT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
  int to_parent[2];
  ASSERT_EQ(::pipe2(to_parent, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto imported = import_sealed(Fd(passed), kSize, false);
    if (!imported.ok()) ::_exit(1);
    if (imported->mapping.data()[100] != std::byte{0}) ::_exit(2);
    char token = 0;
    if (::write(to_parent[1], &token, 1) != 1 || ::read(to_child[0], &token, 1) != 1) ::_exit(3);
    ::_exit(imported->mapping.data()[100] == std::byte{42} ? 0 : 4);
  }
  char token = 0;
  ASSERT_EQ(::read(to_parent[0], &token, 1), 1);
  memory.mapping.data()[100] = std::byte{42};
  ASSERT_EQ(::write(to_child[1], &token, 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (const int fd : {passed, to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

TEST(ImportSealed, IsReadOnlyForGood) {
  const SealedMemory memory = make_sealed();
  const auto imported = import_sealed(duplicate(memory.fd), kSize, false);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(::mprotect(imported->mapping.data(), kSize, PROT_READ | PROT_WRITE), -1);
}

TEST(ImportSealed, OutlivesItsMaker) {
  auto memory = std::make_unique<SealedMemory>(make_sealed());
  std::memset(memory->mapping.data(), 9, kSize);
  const auto imported = import_sealed(duplicate(memory->fd), kSize, false);
  ASSERT_TRUE(imported.ok());
  memory.reset();
  const std::byte* data = imported->mapping.data();
  EXPECT_TRUE(std::all_of(data, data + kSize, [](std::byte b) { return b == std::byte{9}; }));
}

TEST(ImportSealed, NamesEachMissingSeal) {
  struct Case {
    int seal;
    const char* name;
  };
  for (const Case& missing :
       {Case{F_SEAL_SHRINK, "F_SEAL_SHRINK"}, Case{F_SEAL_GROW, "F_SEAL_GROW"},
        Case{F_SEAL_FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"}, Case{F_SEAL_SEAL, "F_SEAL_SEAL"}}) {
    const auto imported = import_sealed(make_memfd(kSize, required_seals() & ~missing.seal), kSize, false);
    ASSERT_FALSE(imported.ok()) << missing.name;
    EXPECT_EQ(imported.error().kind(), ErrorKind::protocol);
    EXPECT_THAT(imported.error().message(), HasSubstr(missing.name));
  }
  const auto bare = import_sealed(make_memfd(kSize, 0), kSize, false);
  ASSERT_FALSE(bare.ok());
  EXPECT_THAT(bare.error().message(),
              HasSubstr("F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL"));
}

TEST(ImportSealed, RefusesAnotherSizeThanAnnounced) {
  for (const std::uint64_t size : {kSize - 4096, kSize - 1, kSize + 1, kSize + 4096, std::uint64_t{0}}) {
    const auto imported = import_sealed(make_memfd(size, required_seals()), kSize, false);
    ASSERT_FALSE(imported.ok()) << size;
    EXPECT_EQ(imported.error().kind(), ErrorKind::protocol);
    EXPECT_THAT(imported.error().message(), HasSubstr(std::to_string(size)));
    EXPECT_THAT(imported.error().message(), HasSubstr(std::to_string(kSize)));
  }
}

TEST(ImportSealed, RefusesAnnouncedSizesOutOfBounds) {
  for (const std::uint64_t size : {std::uint64_t{0}, kMaxMemorySize + 1, ~std::uint64_t{0}}) {
    const auto imported = import_sealed(make_memfd(kSize, required_seals()), size, false);
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(imported.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(ImportSealed, RefusesWhatIsNoMemfd) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd writing(ends[1]);
  const auto pipe = import_sealed(Fd(ends[0]), kSize, false);
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().kind(), ErrorKind::protocol);
  EXPECT_THAT(pipe.error().message(), HasSubstr("no memfd"));

  const auto file = import_sealed(Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), kSize, false);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().kind(), ErrorKind::protocol);

  const auto nothing = import_sealed(Fd(), kSize, false);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().kind(), ErrorKind::io);
}

TEST(ImportSealed, ClosesTheDescriptorEvenWhenItRefuses) {
  Fd fd = make_memfd(kSize, 0);
  const int number = fd.get();
  ASSERT_FALSE(import_sealed(std::move(fd), kSize, false).ok());
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(BackgroundPopulate, ReachesTheEndAndChangesNothing) {
  constexpr std::size_t kLarge = std::size_t{24} << 20U;
  const SealedMemory memory = make_sealed(kLarge);
  for (std::size_t at = 0; at < kLarge; at += 8192) memory.mapping.data()[at] = std::byte{3};
  const auto populate = BackgroundPopulate::start(memory.mapping, BackgroundPopulate::Access::write);
  ASSERT_TRUE(populate.ok());
  for (std::size_t at = 4096; at < kLarge; at += 8192) memory.mapping.data()[at] = std::byte{4};
  (*populate)->wait();
  EXPECT_TRUE((*populate)->finished());
  EXPECT_EQ((*populate)->done(), kLarge);
  for (std::size_t at = 0; at < kLarge; at += 8192) {
    ASSERT_EQ(memory.mapping.data()[at], std::byte{3});
    ASSERT_EQ(memory.mapping.data()[at + 4096], std::byte{4});
  }
}

TEST(BackgroundPopulate, StopsWhenDestroyed) {
  const SealedMemory memory = make_sealed(std::uint64_t{256} << 20U);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(BackgroundPopulate::start(memory.mapping, BackgroundPopulate::Access::write).ok());
  }
}

TEST(BackgroundPopulate, MayBeDroppedInAForkedChild) {
  const SealedMemory memory = make_sealed(std::uint64_t{256} << 20U);
  auto imported = import_sealed(duplicate(memory.fd), memory.mapping.size(), true);
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(test::run_in_child([&] {
              imported = Error(ErrorKind::cancelled, "dropped");
              return 0;
            }),
            0);
}

TEST(BackgroundPopulate, ServesAnImport) {
  const SealedMemory memory = make_sealed();
  const auto imported = import_sealed(duplicate(memory.fd), kSize, true);
  ASSERT_TRUE(imported.ok());
  ASSERT_NE(imported->populate, nullptr);
  imported->populate->wait();
  EXPECT_EQ(imported->populate->done(), kSize);
}

}  // namespace
}  // namespace stagewire
