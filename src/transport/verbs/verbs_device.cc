// See verbs_device.h.
#include "transport/verbs/verbs_device.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include "memory/thread_start.h"
#include "transport/verbs/verbs_error.h"

namespace stagewire {

namespace {

constexpr std::size_t kRegisteringThreads = 4;

std::uint8_t mtu_code(std::uint32_t bytes) {
  std::uint8_t code = 1;  // 256
  while (code < 5 && 256U << code <= bytes) ++code;
  return code;
}

std::uint8_t depth_of(int reads) {
  return static_cast<std::uint8_t>(std::clamp(reads, 1, 255));
}

}  // namespace

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::open(std::shared_ptr<VerbsApi> api, DeviceChoice choice,
                                                       VerbsOptions options, std::shared_ptr<Logger> log,
                                                       const DevicePoller::OnEvent& on_event) {
  std::shared_ptr<VerbsDevice> device(
      new VerbsDevice(std::move(api), std::move(choice), std::move(options), std::move(log)));
  STAGEWIRE_TRY(device->set_up(on_event));
  return device;
}

VerbsDevice::VerbsDevice(std::shared_ptr<VerbsApi> api, DeviceChoice choice, VerbsOptions options,
                         std::shared_ptr<Logger> log)
    : api_(std::move(api)), choice_(std::move(choice)), options_(std::move(options)), log_(std::move(log)) {}

VerbsDevice::~VerbsDevice() {
  close();
}

Status VerbsDevice::open_context() {
  ibv_device** list = api_->get_device_list();
  for (ibv_device** each = list; each != nullptr && *each != nullptr; ++each) {
    if (choice_.device != (*each)->name) continue;
    context_ = api_->open_device(*each);
    const int failed = errno;
    api_->free_device_list(list);
    if (context_ == nullptr) return call_error(failed, "opening " + choice_.device);
    return {};
  }
  if (list != nullptr) api_->free_device_list(list);
  return Error(ErrorKind::not_viable, "the RDMA device " + choice_.device + " is gone");
}

Status VerbsDevice::set_up(const DevicePoller::OnEvent& on_event) {
  helper_ = std::make_unique<DeviceHelper>("sw-verbs-help", options_.helper_timeout, log_);
  STAGEWIRE_TRY(open_context());
  if (const int failed = api_->query_device(context_, attributes_); failed != 0)
    return call_error(failed, "ibv_query_device");
  ibv_port_attr port{};
  if (const int failed = api_->query_port(context_, choice_.port, port); failed != 0)
    return call_error(failed, "ibv_query_port");
  max_message_ = port.max_msg_sz != 0 ? port.max_msg_sz : 1U << 30U;
  pd_ = api_->alloc_pd(context_);
  if (pd_ == nullptr) return call_error(errno, "ibv_alloc_pd");
  channel_ = api_->create_comp_channel(context_);
  if (channel_ == nullptr) return call_error(errno, "ibv_create_comp_channel");
  // Room for all that can complete at once: each queue pair's depth and its sentinel.
  const std::size_t each = options_.send_queue_depth + 1;
  const std::size_t room = static_cast<std::size_t>(std::max(attributes_.max_cqe, 1)) / each;
  max_queues_ = std::min<std::size_t>(
      {options_.max_queue_pairs, room, static_cast<std::size_t>(std::max(attributes_.max_qp, 1))});
  if (max_queues_ == 0) {
    return Error(ErrorKind::config, "rdma_send_queue_depth of " + std::to_string(options_.send_queue_depth) +
                                        " is more than a completion queue of " + choice_.device + " holds (" +
                                        std::to_string(attributes_.max_cqe) + ")");
  }
  cq_ = api_->create_cq(context_, static_cast<int>(max_queues_ * each), channel_);
  if (cq_ == nullptr) return call_error(errno, "ibv_create_cq");
  STAGEWIRE_ASSIGN(poller_,
                   DevicePoller::start(api_, context_, cq_, channel_, options_.spin, on_event, log_));
  return {};
}

verbs_wire::Port VerbsDevice::port() const {
  verbs_wire::Port port;
  port.link_layer = choice_.link_layer;
  port.mtu = mtu_code(choice_.mtu);
  port.lid = choice_.lid;
  port.gid = choice_.gid;
  return port;
}

std::uint8_t VerbsDevice::initiator_depth() const noexcept {
  return depth_of(attributes_.max_qp_init_rd_atom);
}
std::uint8_t VerbsDevice::responder_depth() const noexcept {
  return depth_of(attributes_.max_qp_rd_atom);
}

bool VerbsDevice::still_has_address() {
  if (choice_.link_layer != IBV_LINK_LAYER_ETHERNET) {
    ibv_port_attr port{};
    return api_->query_port(context_, choice_.port, port) == 0 && port.lid == choice_.lid;
  }
  ibv_gid_entry entry{};
  return api_->query_gid(context_, choice_.port, choice_.gid_index, entry) == 0 &&
         std::equal(choice_.gid.begin(), choice_.gid.end(), std::begin(entry.gid.raw));
}

bool VerbsDevice::reserve_queues(std::size_t count) noexcept {
  std::size_t now = queues_.load(std::memory_order_relaxed);
  do {
    if (count > max_queues_ - std::min(now, max_queues_)) return false;
  } while (!queues_.compare_exchange_weak(now, now + count, std::memory_order_relaxed));
  return true;
}

void VerbsDevice::return_queues(std::size_t count) noexcept {
  queues_.fetch_sub(count, std::memory_order_relaxed);
}

Result<Registration> VerbsDevice::register_memory(void* address, std::uint64_t size, bool for_peers,
                                                  std::string_view what) {
  Registration registration;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t most = attributes_.max_mr_size != 0 ? attributes_.max_mr_size : options_.mr_piece;
  registration.piece = std::max(std::min(most, options_.mr_piece) / page, std::uint64_t{1}) * page;
  const std::size_t count = static_cast<std::size_t>((size - 1) / registration.piece + 1);
  registration.pieces.assign(count, nullptr);
  const unsigned access = IBV_ACCESS_RELAXED_ORDERING |
                          static_cast<unsigned>(for_peers ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE);
  std::atomic<std::size_t> next{0};
  std::atomic<int> failed{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count && failed == 0; i = next++) {
      const std::uint64_t offset = i * registration.piece;
      const std::size_t length = std::min(registration.piece, size - offset);
      registration.pieces[i] = api_->reg_mr(pd_, static_cast<std::byte*>(address) + offset, length, access);
      if (registration.pieces[i] == nullptr) {
        failed = errno != 0 ? errno : EIO;
        continue;
      }
      const std::lock_guard lock(live_mutex_);
      live_registrations_.insert(registration.pieces[i]);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(count, kRegisteringThreads); ++i) {
    // Where the system gives no thread, the ones there are do it all.
    if (auto thread = start_thread("sw-verbs-reg", work); thread.ok()) others.push_back(std::move(*thread));
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (failed != 0) {
    deregister(registration);
    return registration_error(failed, size, what);
  }
  return registration;
}

bool VerbsDevice::deregister(const Registration& registration) {
  bool ended = true;
  for (ibv_mr* mr : registration.pieces) {
    {
      const std::lock_guard lock(live_mutex_);
      if (live_registrations_.erase(mr) == 0) continue;
    }
    const int failed = api_->dereg_mr(mr);
    if (failed == 0) continue;
    log_->error(call_error(failed, "ibv_dereg_mr").to_string());
    ended = false;
    const std::lock_guard lock(live_mutex_);
    live_registrations_.insert(mr);
  }
  return ended;
}

void VerbsDevice::hold_until_closed(std::shared_ptr<const void> hold) {
  const std::lock_guard lock(live_mutex_);
  held_until_closed_.push_back(std::move(hold));
}

ibv_qp* VerbsDevice::create_queue_pair(ibv_qp_init_attr& attributes) {
  ibv_qp* qp = api_->create_qp(pd_, attributes);
  if (qp == nullptr) return nullptr;
  const std::lock_guard lock(live_mutex_);
  live_queue_pairs_.insert(qp);
  return qp;
}

int VerbsDevice::destroy_queue_pair(ibv_qp* qp) {
  {
    const std::lock_guard lock(live_mutex_);
    if (live_queue_pairs_.erase(qp) == 0) return 0;
  }
  const int failed = api_->destroy_qp(qp);
  if (failed == 0) return 0;
  const std::lock_guard lock(live_mutex_);
  live_queue_pairs_.insert(qp);
  return failed;
}

void VerbsDevice::close() {
  if (fork_guard_.forked() || closed_.exchange(true)) return;
  // First what is still queued: queue pairs to destroy, memory to deregister.
  if (helper_) helper_->stop();
  if (poller_) poller_->stop();
  const auto check = [this](int failed, const char* call) {
    if (failed != 0) log_->error(call_error(failed, call).to_string());
  };
  // What was on its way to the loop when that closed.
  std::set<ibv_qp*> queue_pairs;
  std::set<ibv_mr*> registrations;
  std::vector<std::shared_ptr<const void>> held;  // until the end of this, when the device is closed
  {
    const std::lock_guard lock(live_mutex_);
    queue_pairs.swap(live_queue_pairs_);
    registrations.swap(live_registrations_);
    held.swap(held_until_closed_);
  }
  for (ibv_qp* qp : queue_pairs) check(api_->destroy_qp(qp), "ibv_destroy_qp");
  for (ibv_mr* mr : registrations) check(api_->dereg_mr(mr), "ibv_dereg_mr");
  if (cq_ != nullptr) check(api_->destroy_cq(cq_), "ibv_destroy_cq");
  if (channel_ != nullptr) check(api_->destroy_comp_channel(channel_), "ibv_destroy_comp_channel");
  if (pd_ != nullptr) check(api_->dealloc_pd(pd_), "ibv_dealloc_pd");
  if (context_ != nullptr) check(api_->close_device(context_), "ibv_close_device");
}

}  // namespace stagewire
