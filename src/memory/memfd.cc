// See memfd.h. Uses raw system calls on purpose: the order in which they are made is the security argument.
#include "memory/memfd.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/thread_start.h"

namespace stagewire {

namespace {

// Linux 6.3; glibc 2.36 does not name it. Asked for because a kernel with vm.memfd_noexec=2 gives no memfd
// without it, and dropped (EINVAL) where the kernel does not know it.
constexpr unsigned kNoExecSeal = 0x0008U;

// The kernel's limit for a memfd's name is 249 bytes.
constexpr std::size_t kMaxMemfdName = 200;

// One populating step. At 0.5–0.8 GB/s of page clearing this is 5–8 ms: how long stopping may take.
constexpr std::size_t kPopulateStep = std::size_t{4} << 20U;

std::size_t default_page_size() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// The default hugetlb page size, which MFD_HUGETLB without a size uses, as the new memfd's st_blksize.
std::size_t page_size_of(const Fd& fd) noexcept {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0 || status.st_blksize <= 0) return default_page_size();
  return static_cast<std::size_t>(status.st_blksize);
}

int make_memfd(const std::string& name, unsigned flags) noexcept {
  const int fd = ::memfd_create(name.c_str(), flags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return fd;
  return ::memfd_create(name.c_str(), flags);
}

Result<SealedMemory> create_with(const std::string& name, std::uint64_t size, unsigned page_flags) {
  SealedMemory memory;
  memory.fd = Fd(make_memfd(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | page_flags));
  if (!memory.fd) return Error::from_errno(errno, "cannot create a memfd for pool memory");
  memory.page_size = page_flags == 0 ? default_page_size() : page_size_of(memory.fd);
  const std::uint64_t rounded = (size + memory.page_size - 1) / memory.page_size * memory.page_size;
  if (::ftruncate(memory.fd.get(), static_cast<off_t>(rounded)) != 0)
    return Error::from_errno(errno, "cannot size a memfd to " + std::to_string(rounded) + " bytes");
  // Before the seals: FUTURE_WRITE forbids every later writable mapping and leaves this one alone.
  void* data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd.get(), 0);
  if (data == MAP_FAILED)
    return Error::from_errno(errno, "cannot map " + std::to_string(rounded) + " bytes of pool memory");
  memory.mapping = Mapping(static_cast<std::byte*>(data), rounded);
  if (::fcntl(memory.fd.get(), F_ADD_SEALS, required_seals()) != 0)
    return Error::from_errno(errno, "cannot seal pool memory (F_SEAL_FUTURE_WRITE needs Linux 5.1)");
  return memory;
}

std::string missing_seals(int present) {
  struct Name {
    int seal;
    const char* name;
  };
  constexpr Name names[] = {{F_SEAL_SHRINK, "F_SEAL_SHRINK"},
                            {F_SEAL_GROW, "F_SEAL_GROW"},
                            {F_SEAL_FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"},
                            {F_SEAL_SEAL, "F_SEAL_SEAL"}};
  std::string text;
  for (const Name& entry : names) {
    if ((present & entry.seal) != 0) continue;
    if (!text.empty()) text += ", ";
    text += entry.name;
  }
  return text;
}

}  // namespace

int required_seals() noexcept {
  return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

Result<std::unique_ptr<BackgroundPopulate>> BackgroundPopulate::start(const Mapping& mapping, Access access) {
  // The constructor is private, which make_unique cannot reach.
  std::unique_ptr<BackgroundPopulate> populate(
      new BackgroundPopulate(mapping.data(), mapping.size(), access));
  STAGEWIRE_ASSIGN(std::thread thread, start_thread("sw-populate", [self = populate.get()] { self->run(); }));
  populate->thread_ = std::make_unique<std::thread>(std::move(thread));
  return populate;
}

BackgroundPopulate::~BackgroundPopulate() {
  if (!thread_) return;
  if (fork_guard_.forked()) {
    // There is no such thread in a forked child; joining it would wait forever, and so it is forgotten.
    static_cast<void>(thread_.release());
    return;
  }
  stop_.store(true, std::memory_order_relaxed);
  thread_->join();
}

void BackgroundPopulate::run() noexcept {
  // MADV_POPULATE_WRITE (Linux 5.14) faults pages in without changing them, so it may race with users that
  // already write there. An older kernel answers EINVAL, and the pages come when they are first used.
  const int advice = access_ == Access::read ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  for (std::size_t at = 0; at < size_ && !stop_.load(std::memory_order_relaxed);) {
    const std::size_t step = std::min(kPopulateStep, size_ - at);
    if (::madvise(data_ + at, step, advice) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      break;
    }
    at += step;
    done_.store(at, std::memory_order_release);
  }
  finished_.store(true, std::memory_order_release);
  finished_.notify_all();
}

Result<SealedMemory> create_sealed(const std::string& name, std::uint64_t size, bool huge_pages) {
  if (size == 0 || size > kMaxMemorySize)
    return Error(ErrorKind::invalid_argument, "a pool's size is " + std::to_string(size) +
                                                  " bytes; expected 1 to " + std::to_string(kMaxMemorySize));
  const std::string memfd_name = "stagewire:" + name.substr(0, kMaxMemfdName);
  if (huge_pages) {
    // mmap reserves hugetlb pages for the whole file, so too few of them fail here and not as a SIGBUS later.
    auto memory = create_with(memfd_name, size, MFD_HUGETLB);
    if (memory.ok()) return memory;
  }
  return create_with(memfd_name, size, 0);
}

Result<ImportedMapping> import_sealed(Fd fd, std::uint64_t expected_size, bool populate) {
  if (expected_size == 0 || expected_size > kMaxMemorySize)
    return Error(ErrorKind::invalid_argument, "a peer's memory is said to have " +
                                                  std::to_string(expected_size) + " bytes; expected 1 to " +
                                                  std::to_string(kMaxMemorySize));
  // The seals first, then the size, then the mapping. Once SHRINK and GROW are seen the size is final: a seal
  // can be added and never be removed, and the kernel refuses ftruncate and hole punching on such a file. So
  // no page below the size that fstat reports can be truncated away later, and a read from the mapping cannot
  // end in SIGBUS. Checked in the other order, a peer could shrink between the two calls.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    if (errno != EINVAL) return Error::from_errno(errno, "cannot read the seals of a peer's memory");
    return Error(ErrorKind::protocol,
                 "the descriptor that the peer sent is no memfd: it cannot carry seals; refused");
  }
  if ((seals & required_seals()) != required_seals())
    return Error(ErrorKind::protocol, "the peer's memory lacks the seals " + missing_seals(seals) +
                                          "; without them it could change under us; refused");
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0)
    return Error::from_errno(errno, "cannot read the size of a peer's memory");
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) != expected_size)
    return Error(ErrorKind::protocol, "the peer's memory has " + std::to_string(status.st_size) +
                                          " bytes where it announced " + std::to_string(expected_size) +
                                          "; refused");
  // MAP_SHARED: a private mapping may keep showing pages as they were before the peer wrote them.
  void* data = ::mmap(nullptr, expected_size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED)
    return Error::from_errno(errno,
                             "cannot map " + std::to_string(expected_size) + " bytes of a peer's memory");
  ImportedMapping imported;
  imported.mapping = Mapping(static_cast<std::byte*>(data), expected_size);
  if (populate) {
    STAGEWIRE_ASSIGN(imported.populate,
                     BackgroundPopulate::start(imported.mapping, BackgroundPopulate::Access::read));
  }
  return imported;
}

}  // namespace stagewire
