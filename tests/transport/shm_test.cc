// What only the shm transport can get wrong: descriptors that are not what the peer said. Runs on the test
// thread, which plays the loop.
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "memory/copy.h"
#include "memory/memfd.h"
#include "support.h"
#include "transport/shm/shm_link.h"
#include "transport/shm/shm_transport.h"

namespace stagewire::testing_support {
namespace {

constexpr std::uint64_t kSize = 1U << 20U;

Fd plain_memfd(std::uint64_t size) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

class ShmLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto link = transport_.connect(channel_, "");
    ASSERT_TRUE(link.ok());
    link_ = std::move(*link);
    auto sealed = create_sealed("test", kSize, false);
    ASSERT_TRUE(sealed.ok());
    memory_ = std::move(*sealed);
  }
  ImportedMemory announce(std::uint32_t id, std::uint64_t size) {
    ImportedMemory memory;
    memory.memory = id;
    memory.size = size;
    memory.token = shm::make_token(size);
    memory.descriptors.emplace_back(::dup(memory_.fd.get()));
    return memory;
  }

  CopyEngine engine_{1};
  ShmTransport transport_{engine_};
  TestChannel channel_;
  std::unique_ptr<Link> link_;
  SealedMemory memory_;
};

TEST_F(ShmLinkTest, TakesASealedMemfd) {
  EXPECT_EQ(kind_name(link_->attach(announce(1, kSize))), "ok");
}

TEST_F(ShmLinkTest, RefusesAnUnsealedMemfd) {
  ImportedMemory memory = announce(1, kSize);
  memory.descriptors[0] = plain_memfd(kSize);
  const Status status = link_->attach(std::move(memory));
  ASSERT_EQ(kind_name(status), "protocol");
  EXPECT_NE(status.error().message().find("SEAL"), std::string::npos) << status.error();
}

TEST_F(ShmLinkTest, RefusesAMemfdOfAnotherSize) {
  EXPECT_EQ(kind_name(link_->attach(announce(1, kSize + 4096))), "protocol");
  EXPECT_EQ(kind_name(link_->attach(announce(1, kSize - 4096))), "protocol");
  EXPECT_FALSE(link_->attach(announce(1, 0)).ok());
  EXPECT_FALSE(link_->attach(announce(1, ~0ULL)).ok());
}

TEST_F(ShmLinkTest, RefusesADescriptorThatIsNoMemfd) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Fd writing(ends[1]);
  ImportedMemory memory = announce(1, kSize);
  memory.descriptors[0] = Fd(ends[0]);
  EXPECT_FALSE(link_->attach(std::move(memory)).ok());
}

TEST_F(ShmLinkTest, RefusesNoneAndTwoDescriptors) {
  ImportedMemory none = announce(1, kSize);
  none.descriptors.clear();
  EXPECT_EQ(kind_name(link_->attach(std::move(none))), "protocol");
  ImportedMemory two = announce(1, kSize);
  two.descriptors.emplace_back(::dup(memory_.fd.get()));
  EXPECT_EQ(kind_name(link_->attach(std::move(two))), "protocol");
}

TEST_F(ShmLinkTest, RefusesBadTokens) {
  for (const std::string& token : {std::string(), std::string(16, '\0'), shm::make_token(kSize) + "x",
                                   shm::make_token(kSize).substr(1), shm::make_token(kSize + 1)}) {
    ImportedMemory memory = announce(1, kSize);
    memory.token = token;
    EXPECT_EQ(kind_name(link_->attach(std::move(memory))), "protocol");
  }
  ImportedMemory device = announce(1, kSize);
  device.kind = MemoryKind{MemoryKind::Type::cuda, 0};
  EXPECT_EQ(kind_name(link_->attach(std::move(device))), "protocol");
}

TEST_F(ShmLinkTest, RefusesTheSameMemoryTwiceAndTooMany) {
  for (std::uint32_t id = 0; id < ShmLink::kMaxMemories; ++id) {
    ASSERT_EQ(kind_name(link_->attach(announce(id, kSize))), "ok");
    if (id == 0) {
      EXPECT_EQ(kind_name(link_->attach(announce(0, kSize))), "protocol");
    }
  }
  EXPECT_EQ(kind_name(link_->attach(announce(1000, kSize))), "busy");
}

TEST_F(ShmLinkTest, IsNotViableBetweenHosts) {
  channel_.on_same_host = false;
  auto link = transport_.connect(channel_, "");
  ASSERT_TRUE(link.ok());
  const Viability viability = (*link)->viability(MemoryKind::host(), MemoryKind::host());
  EXPECT_FALSE(viability.viable);
  EXPECT_NE(viability.reason.find("Unix socket"), std::string::npos) << viability.reason;
  EXPECT_EQ(kind_name((*link)->attach(announce(1, kSize))), "protocol");
}

TEST_F(ShmLinkTest, ReceiveMemoryIsNeverExported) {
  PoolOptions options;
  options.use = PoolUse::receive;
  options.size = kSize;
  options.touch_in_background = false;
  auto pool = Pool::create(options);
  ASSERT_TRUE(pool.ok());
  EXPECT_FALSE(transport_.export_memory(ExportedMemory::of(1, *pool)).ok());
}

}  // namespace
}  // namespace stagewire::testing_support
