// See doctor_checks.h.
#include "doctor_checks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <stagewire/node/node.h>

#include "base/fd.h"
#include "base/units.h"
#include "memory/copy_kernels.h"
#include "memory/memfd.h"
#include "transport/verbs/device_choice.h"
#include "transport/verbs/verbs_real.h"

namespace stagewire::tools {

namespace {

std::string errno_text() {
  return Error::from_errno(errno, "the kernel says").message();
}

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Check works(std::string name, std::string finding) {
  return {std::move(name), Health::works, std::move(finding), ""};
}

bool transport_allowed(const NodeConfig& config, std::string_view name) {
  return std::any_of(config.routes.begin(), config.routes.end(),
                     [&](const std::string& route) { return route == "auto" || route == name; });
}

// --- Shared memory.

Check check_sealed_memory() {
  Result<SealedMemory> memory = create_sealed("doctor", 1U << 20U, false);
  if (!memory.ok()) {
    return {"sealed memfd", Health::broken, memory.error().to_string(),
            "needs Linux 5.1 or newer, and a seccomp filter that lets memfd_create and fcntl pass"};
  }
  const std::string through_proc = "/proc/self/fd/" + std::to_string(memory->fd.get());
  const Fd again(::open(through_proc.c_str(), O_RDWR | O_CLOEXEC));
  if (again) {
    void* mapping = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0);
    if (mapping != MAP_FAILED) {
      ::munmap(mapping, 4096);
      return {"sealed memfd", Health::broken, "this kernel lets a sealed memfd be mapped for writing again",
              "use a kernel that honours F_SEAL_FUTURE_WRITE (Linux 5.1 or newer)"};
    }
  }
  Fd copy(::fcntl(memory->fd.get(), F_DUPFD_CLOEXEC, 0));
  Result<ImportedMapping> imported = import_sealed(std::move(copy), 1U << 20U, false);
  if (!imported.ok()) return {"sealed memfd", Health::broken, imported.error().to_string(), ""};
  return works("sealed memfd", "can be shared, cannot be resized, and a peer cannot map it for writing");
}

Check check_unix_sockets(const NodeConfig& config) {
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (config.socket_dir.empty()) {
    // The kernel chooses a free abstract name for an address without one.
    if (listener && ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0)
      return works("abstract Unix sockets", "can be bound");
    return {"abstract Unix sockets", Health::broken, errno_text(),
            "set socket_dir to a directory that all processes of the pipeline can write to"};
  }
  const std::string name = "directory for Unix sockets";
  struct stat info{};
  if (::stat(config.socket_dir.c_str(), &info) != 0)
    return {name, Health::broken, config.socket_dir + ": " + errno_text(),
            "mkdir -p -m 700 " + config.socket_dir};
  if (!S_ISDIR(info.st_mode)) {
    return {name, Health::broken, config.socket_dir + " is not a directory", "set socket_dir to a directory"};
  }
  if (::access(config.socket_dir.c_str(), W_OK | X_OK) != 0) {
    return {name, Health::broken, config.socket_dir + ": " + errno_text(),
            "give this user the right to write to it"};
  }
  return works(name, config.socket_dir + " can be written to");
}

Check check_descriptor_passing() {
  std::array<int, 2> pair{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return {"passing descriptors", Health::broken, errno_text(), ""};
  const Fd a(pair[0]);
  const Fd b(pair[1]);
  char byte = 0;
  iovec part{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int sent = a.get();
  std::memcpy(CMSG_DATA(header), &sent, sizeof sent);
  if (::sendmsg(a.get(), &message, MSG_NOSIGNAL) != 1 ||
      ::recvmsg(b.get(), &message, MSG_CMSG_CLOEXEC) != 1 || (message.msg_flags & MSG_CTRUNC) != 0 ||
      CMSG_FIRSTHDR(&message) == nullptr) {
    return {"passing descriptors", Health::broken,
            "a descriptor did not arrive over a Unix socket: " + errno_text(),
            "raise the limit of open files (ulimit -n), and look for a security module that forbids it"};
  }
  int received = -1;
  std::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
  const Fd owned(received);
  return works("passing descriptors", "works over Unix sockets");
}

Check check_boot_id() {
  const std::string id = read_line("/proc/sys/kernel/random/boot_id");
  if (id.size() == 36) return works("boot id", "can be read, so that peers of this host are recognised");
  return {"boot id", Health::limited,
          "/proc/sys/kernel/random/boot_id cannot be read: peers of this host are taken "
          "for remote ones and reached by TCP",
          "mount /proc in this container"};
}

Check check_pidfd() {
  const Fd own(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (own) return works("pidfd", "a peer's death is noticed at once");
  return {"pidfd", Health::limited,
          errno_text() + "; a peer's death is noticed by the hang-up of its lifeline alone",
          "use Linux 5.3 or newer and a seccomp filter that lets pidfd_open pass"};
}

Check check_copy_kernel() {
  const StreamingKernel kernel = streaming_kernel();
  std::string features;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) features += " avx2";
  if (__builtin_cpu_supports("avx512f")) features += " avx512f";
  if (features.empty()) features = " none of avx2, avx512f";
  Check check =
      works("copy kernel", "large copies use '" + std::string(kernel.name) + "'; the CPU has" + features);
  if (kernel.name == "memcpy") {
    check.health = Health::limited;
    check.finding += "; copies of large payloads are slower than with AVX2's non-temporal stores";
  }
  return check;
}

Check check_huge_pages(const NodeConfig& config) {
  Result<SealedMemory> memory = create_sealed("doctor", 2U << 20U, true);
  const std::uint64_t obtained = memory.ok() ? memory->page_size : 0;
  const std::uint64_t needed = (config.publish_pool_size + config.receive_pool_size + (2U << 20U) - 1) >> 21U;
  if (obtained > 4096)
    return works("huge pages", "pages of " + format_size(obtained) + " are obtained" +
                                   (config.huge_pages ? "" : "; huge_pages=true would use them"));
  Check check;
  check.name = "huge pages";
  check.health = config.huge_pages ? Health::limited : Health::absent;
  check.finding = std::string(config.huge_pages ? "asked for" : "not asked for (huge_pages)") +
                  ", and the kernel has none to give: pages of 4 KiB are used";
  check.fix =
      "as root: sysctl vm.nr_hugepages=" + std::to_string(needed) + " (for both pools of this configuration)";
  return check;
}

Check check_memory(const NodeConfig& config) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string rest;
  while (file >> name >> kibibytes && std::getline(file, rest)) {
    if (name == "MemAvailable:") break;
  }
  const std::uint64_t available = kibibytes << 10U;
  const std::uint64_t wanted = config.publish_pool_size + config.receive_pool_size;
  const std::string finding =
      "the pools take " + format_size(wanted) + "; " + format_size(available) + " are available";
  if (name == "MemAvailable:" && available < wanted) {
    return {"free memory", Health::limited, finding,
            "make publish_pool_size and receive_pool_size smaller, or free memory"};
  }
  return works("free memory", finding);
}

// --- TCP.

Check check_tcp_trust(const NodeConfig& config) {
  if (!config.secret.empty() || !config.secret_file.empty())
    return works("authentication", "a shared secret is configured");
  if (config.insecure) {
    return {"authentication", Health::limited, "insecure is set: any process that reaches the port is served",
            "stagewire keygen -o FILE, then secret_file=FILE on every node"};
  }
  return {"authentication", transport_allowed(config, "auto") ? Health::limited : Health::broken,
          "no secret is configured, so that TCP is not served; processes of this user on this host are",
          "stagewire keygen -o FILE, then secret_file=FILE on every node"};
}

Check check_listen(const NodeConfig& config) {
  NodeConfig small = config;
  small.publish_pool_size = small.receive_pool_size = 1U << 20U;
  small.touch_pools = false;
  small.huge_pages = false;
  small.log_level = "off";
  const Result<std::shared_ptr<Node>> node = Node::create(small);
  if (!node.ok()) {
    return {"starting a node", Health::broken, node.error().to_string(),
            "correct the options that the message names (stagewire explain --config-table)"};
  }
  std::string addresses;
  for (const std::string& address : (*node)->addresses()) addresses += " " + address;
  (*node)->close();
  return works("starting a node", "listens on" + addresses);
}

Check check_congestion(const NodeConfig& config) {
  const std::string current = read_line("/proc/sys/net/ipv4/tcp_congestion_control");
  const std::string available = read_line("/proc/sys/net/ipv4/tcp_available_congestion_control");
  const std::string& wanted = config.tcp_congestion;
  if (wanted.empty())
    return works("congestion control", "the system's is used: " + current +
                                           ", and reno to peers of this host (available: " + available + ")");
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket && ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, wanted.c_str(),
                             static_cast<socklen_t>(wanted.size())) == 0) {
    return works("congestion control", wanted + " can be chosen");
  }
  return {"congestion control", Health::broken,
          wanted + " cannot be chosen: " + errno_text() + " (available: " + available + ")",
          "as root: modprobe tcp_" + wanted + " and add it to net.ipv4.tcp_allowed_congestion_control"};
}

Check check_buffers(const NodeConfig& config) {
  std::uint64_t send_limit = 0;
  std::uint64_t receive_limit = 0;
  std::ifstream("/proc/sys/net/core/wmem_max") >> send_limit;
  std::ifstream("/proc/sys/net/core/rmem_max") >> receive_limit;
  const std::string limits = "the kernel allows " + format_size(send_limit) + " to send and " +
                             format_size(receive_limit) + " to receive";
  if (config.tcp_buffer == 0) return works("socket buffers", "tuned by the kernel; " + limits);
  if (config.tcp_buffer <= send_limit && config.tcp_buffer <= receive_limit)
    return works("socket buffers", format_size(config.tcp_buffer) + " as configured; " + limits);
  const std::string bytes = std::to_string(config.tcp_buffer);
  return {"socket buffers", Health::limited,
          "tcp_buffer asks for " + format_size(config.tcp_buffer) + ", but " + limits,
          "as root: sysctl net.core.wmem_max=" + bytes + " net.core.rmem_max=" + bytes};
}

// --- RDMA.

Check check_rdma(const NodeConfig& config) {
  const bool wanted = std::find(config.routes.begin(), config.routes.end(), "verbs") != config.routes.end();
  const Health missing = wanted ? Health::broken : Health::absent;
  Result<std::shared_ptr<VerbsApi>> api = open_real_verbs();
  if (!api.ok()) {
    return {"RDMA", missing, api.error().message(), "apt-get install ibverbs-providers libibverbs1"};
  }
  const Result<std::vector<InterfaceAddress>> addresses = interface_addresses();
  const DeviceDecision decision =
      choose_device(verbs_options(config),
                    gather_device_facts(**api, addresses.ok() ? *addresses : std::vector<InterfaceAddress>()),
                    own_numa_node());
  if (!decision.choice) {
    const bool misnamed = decision.error->kind() == ErrorKind::config;
    return {"RDMA", misnamed ? Health::broken : missing, decision.error->message(),
            misnamed ? "correct rdma_device" : ""};
  }
  std::string finding;
  for (const DeviceCandidate& candidate : decision.considered)
    finding += (finding.empty() ? "" : "; ") + candidate.name + ": " + candidate.reason;
  return works("RDMA", finding);
}

Check check_locked_memory(const NodeConfig& config, bool rdma) {
  rlimit limit{};
  static_cast<void>(::getrlimit(RLIMIT_MEMLOCK, &limit));
  const std::string amount = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_size(limit.rlim_cur);
  if (!rdma)
    return {"locked memory", Health::absent, amount + "; matters to RDMA alone, which is not used", ""};
  const std::uint64_t wanted = config.publish_pool_size + config.receive_pool_size;
  // CAP_IPC_LOCK lifts the limit; registering a pool is the true test, and a node says how that went.
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted && ::geteuid() != 0) {
    return {"locked memory", Health::limited,
            amount + " may be locked; the two pools need " + format_size(wanted) + " to be registered",
            "ulimit -l unlimited (LimitMEMLOCK=infinity for a service, --ulimit memlock=-1 for a container)"};
  }
  return works("locked memory", amount);
}

// --- The process.

Check check_open_files(const NodeConfig& config) {
  rlimit limit{};
  static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
  // A peer takes a session, a pidfd, two lifelines and its data connections in both directions.
  const std::uint64_t per_peer = 4 + 2 * std::uint64_t{config.tcp_connections};
  const std::uint64_t peers = limit.rlim_cur / per_peer;
  const std::string finding = "up to " + std::to_string(limit.rlim_cur) + ", enough for about " +
                              std::to_string(peers) + " peers at " + std::to_string(per_peer) + " each";
  if (limit.rlim_cur < 1024)
    return {"open files", Health::limited, finding, "ulimit -n 65536 (LimitNOFILE=65536 for a service)"};
  return works("open files", finding);
}

Check check_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  static_cast<void>(::sched_getaffinity(0, sizeof set, &set));
  const int count = CPU_COUNT(&set);
  if (count > 1) return works("CPUs", std::to_string(count) + " may be used; a waiting caller spins briefly");
  return {"CPUs", Health::limited, "one may be used: waiting callers do not spin, and copies have one thread",
          "give the process more CPUs (taskset, cgroup)"};
}

}  // namespace

std::string_view to_string(Health health) noexcept {
  switch (health) {
    case Health::works:
      return "works";
    case Health::limited:
      return "limited";
    case Health::broken:
      return "broken";
    case Health::absent:
      return "absent";
  }
  return "";
}

Health CheckGroup::health() const noexcept {
  const auto any = [this](Health health) {
    return std::any_of(checks.begin(), checks.end(), [health](const Check& c) { return c.health == health; });
  };
  if (any(Health::broken)) return Health::broken;
  if (any(Health::limited)) return Health::limited;
  return any(Health::works) ? Health::works : Health::absent;
}

std::vector<CheckGroup> run_checks(const NodeConfig& config) {
  std::vector<CheckGroup> groups;
  groups.push_back(
      {"node", {check_listen(config), check_open_files(config), check_cpus(), check_memory(config)}});
  groups.push_back({"local", {works("same process", "always works")}});
  groups.push_back({"shm",
                    {check_sealed_memory(), check_unix_sockets(config), check_descriptor_passing(),
                     check_boot_id(), check_pidfd(), check_copy_kernel(), check_huge_pages(config)}});
  groups.push_back({"tcp", {check_tcp_trust(config), check_congestion(config), check_buffers(config)}});
  const Check rdma = check_rdma(config);
  groups.push_back({"verbs", {rdma, check_locked_memory(config, rdma.health == Health::works)}});
  groups.push_back(
      {"cuda_ipc",
       {{"CUDA", Health::absent, "GPU memory is not used in this version; copy tensors to the host", ""}}});
  return groups;
}

}  // namespace stagewire::tools
