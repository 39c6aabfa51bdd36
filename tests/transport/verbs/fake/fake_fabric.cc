// See fake_fabric.h.
#include "fake_fabric.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "fake_verbs.h"

namespace stagewire::testing_support {

namespace {

constexpr std::size_t kMaxQueuePairs = 1024;
constexpr std::size_t kMaxRegistrations = 1024;
constexpr std::uint32_t kFirstNumber = 0x100;

// A GID in two words: each is read whole. One that is read while it changes is nobody's, as on the wire.
using GidWords = std::array<std::uint64_t, 2>;

GidWords words_of(const Gid& gid) {
  GidWords words{};
  static_assert(sizeof words == sizeof gid);
  std::memcpy(words.data(), gid.data(), sizeof words);
  return words;
}

std::uint64_t word_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

ssize_t read_memory(pid_t owner, std::uint64_t address, std::span<std::byte> to) {
  iovec here{.iov_base = to.data(), .iov_len = to.size()};
  iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = to.size()};
  return ::process_vm_readv(owner, &here, 1, &there, 1, 0);
}

// Yama lets a process read another's memory only if that one has agreed. Without Yama there is nothing to
// agree to, and the call fails.
void let_others_read() {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

// The direction that Yama forbids by default is the one from the parent's memory to the child.
std::string find_obstacle() {
  let_others_read();
  constexpr std::byte kMark{0x5A};
  static std::byte mark{0};
  mark = kMark;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    std::byte seen{0};
    const bool read = read_memory(parent, word_of(&mark), {&seen, 1}) == 1;
    ::_exit(read ? (seen == kMark ? 0 : EIO) : errno);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return "the process that was to try to read this one's memory failed";
  if (WEXITSTATUS(status) == 0) return "";
  return std::string("a process may not read another's memory here: process_vm_readv: ") +
         std::strerror(WEXITSTATUS(status));
}

}  // namespace

// What all processes map. All bytes zero, as in a new file, is an empty table. `number` and `key` are written
// last and, at the end, first: whoever finds the number before and after has read what belongs to it, since
// no number comes twice.
struct FakeFabric::QueuePairPlace {
  std::atomic<pid_t> owner;  // 0: free
  std::atomic<std::uint32_t> number;
  std::atomic<std::uint32_t> peer;
  std::atomic<std::uint32_t> rq_psn;
  std::atomic<std::uint32_t> state;
  std::atomic<bool> remote_read;
  std::atomic<bool> port_active;
  std::atomic<std::uint16_t> lid;
  std::atomic<std::uint64_t> pd;
  std::array<std::array<std::atomic<std::uint64_t>, 2>, kMaxGids> gids;
};
struct FakeFabric::RegistrationPlace {
  std::atomic<pid_t> owner;  // 0: free
  std::atomic<std::uint32_t> key;
  std::atomic<std::uint64_t> pd;
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> length;
};
struct FakeFabric::Tables {
  std::atomic<std::uint32_t> numbers;  // given out so far
  std::array<QueuePairPlace, kMaxQueuePairs> queue_pairs;
  std::array<RegistrationPlace, kMaxRegistrations> registrations;
};

namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "an atomic with a lock of its own is none between processes");

template <typename Places>
auto& take_place(Places& places, const char* what) {
  for (auto& place : places) {
    pid_t free = 0;
    if (place.owner.compare_exchange_strong(free, ::getpid())) return place;
  }
  misuse(std::string("the fabric has no place for one more ") + what);
}

}  // namespace

std::shared_ptr<FakeFabric> FakeFabric::join(const std::filesystem::path& file) {
  let_others_read();
  const Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ::ftruncate(fd.get(), sizeof(Tables)) != 0) misuse("no fabric at " + file.string());
  void* mapped = ::mmap(nullptr, sizeof(Tables), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) misuse("the fabric can't be mapped");
  return std::shared_ptr<FakeFabric>(new FakeFabric(static_cast<Tables*>(mapped)));
}

const std::string& FakeFabric::obstacle() {
  static const std::string kObstacle = find_obstacle();
  return kObstacle;
}

FakeFabric::~FakeFabric() {
  ::munmap(tables_, sizeof(Tables));
}

std::uint32_t FakeFabric::next_number() {
  return kFirstNumber + tables_->numbers.fetch_add(1);
}

void FakeFabric::set(const FabricQueuePair& queue_pair) {
  if (queue_pair.gids.size() > kMaxGids) misuse("a port has more GIDs than the fabric has room for");
  auto& places = tables_->queue_pairs;
  const auto known = std::find_if(places.begin(), places.end(), [&](const QueuePairPlace& place) {
    return place.number == queue_pair.number;
  });
  QueuePairPlace& place = known != places.end() ? *known : take_place(places, "queue pair");
  place.peer = queue_pair.peer;
  place.rq_psn = queue_pair.rq_psn;
  place.remote_read = queue_pair.remote_read;
  place.port_active = queue_pair.port_active;
  place.lid = queue_pair.lid;
  place.pd = word_of(queue_pair.pd);
  for (std::size_t i = 0; i < kMaxGids; ++i) {
    const GidWords words = i < queue_pair.gids.size() ? words_of(queue_pair.gids[i]) : GidWords{};
    place.gids[i][0] = words[0];
    place.gids[i][1] = words[1];
  }
  place.state = queue_pair.state;  // after what it is to be judged by
  place.number = queue_pair.number;
}

void FakeFabric::remove_queue_pair(std::uint32_t number) {
  for (QueuePairPlace& place : tables_->queue_pairs) {
    if (place.number != number) continue;
    place.number = 0;
    place.owner = 0;
    return;
  }
}

void FakeFabric::add(const FabricRegistration& registration) {
  RegistrationPlace& place = take_place(tables_->registrations, "registration");
  place.pd = word_of(registration.pd);
  place.address = word_of(registration.address);
  place.length = registration.length;
  place.key = registration.key;
}

void FakeFabric::remove_registration(std::uint32_t key) {
  for (RegistrationPlace& place : tables_->registrations) {
    if (place.key != key) continue;
    place.key = 0;
    place.owner = 0;
    return;
  }
}

ibv_wc_status FakeFabric::check(const FabricRead& read, pid_t& owner) const {
  if (read.to == 0) return IBV_WC_RETRY_EXC_ERR;  // what a free place says
  const auto& queue_pairs = tables_->queue_pairs;
  const auto peer = std::find_if(queue_pairs.begin(), queue_pairs.end(),
                                 [&](const QueuePairPlace& place) { return place.number == read.to; });
  if (peer == queue_pairs.end()) return IBV_WC_RETRY_EXC_ERR;
  const std::uint32_t state = peer->state;
  const GidWords gid = words_of(read.gid);
  const bool addressed =
      read.global ? std::any_of(peer->gids.begin(), peer->gids.end(),
                                [&](const auto& words) { return words[0] == gid[0] && words[1] == gid[1]; })
                  : peer->lid == read.lid;
  const bool answers = addressed && (state == IBV_QPS_RTR || state == IBV_QPS_RTS) &&
                       peer->peer == read.from && peer->rq_psn == read.sq_psn && peer->port_active;
  const bool may_read = peer->remote_read;
  const std::uint64_t pd = peer->pd;
  owner = peer->owner;
  if (!answers || peer->number != read.to) return IBV_WC_RETRY_EXC_ERR;
  if (!may_read) return IBV_WC_REM_INV_REQ_ERR;
  if (read.key == 0) return IBV_WC_REM_ACCESS_ERR;

  const auto& registrations = tables_->registrations;
  const auto memory = std::find_if(registrations.begin(), registrations.end(),
                                   [&](const RegistrationPlace& place) { return place.key == read.key; });
  if (memory == registrations.end()) return IBV_WC_REM_ACCESS_ERR;
  const std::uint64_t begin = memory->address;
  const std::uint64_t length = memory->length;
  // Addresses of two processes may be the same: a protection domain is named by both.
  const bool same_domain = memory->owner == owner && memory->pd == pd;
  const bool inside =
      read.address >= begin && read.length <= length && read.address - begin <= length - read.length;
  return same_domain && inside && memory->key == read.key ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

ibv_wc_status FakeFabric::fetch(const FabricRead& read, std::uint64_t offset, std::span<std::byte> to) const {
  pid_t owner = 0;
  if (const ibv_wc_status status = check(read, owner); status != IBV_WC_SUCCESS) return status;
  const ssize_t got = to.empty() ? 0 : read_memory(owner, read.address + offset, to);
  const int error = errno;
  pid_t still = 0;
  if (const ibv_wc_status status = check(read, still); status != IBV_WC_SUCCESS) return status;
  if (got == static_cast<ssize_t>(to.size())) return IBV_WC_SUCCESS;
  // Pages that an adapter would still hold.
  if (got >= 0 || error == EFAULT) misuse("memory was unmapped in another process while it was registered");
  return IBV_WC_RETRY_EXC_ERR;  // there is no such process any more
}

}  // namespace stagewire::testing_support
