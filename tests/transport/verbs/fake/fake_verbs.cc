// The objects of the fake and what tests set. See fake_verbs.h; what happens to requests is in fake_wire.cc
// and fake_far.cc.
#include "fake_verbs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace stagewire::testing_support {

void misuse(const std::string& what) {
  std::fprintf(stderr, "fake verbs: misuse: %s\n", what.c_str());
  std::abort();
}

Gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d};
}

FakeDevice fake_roce(const std::string& name, std::uint8_t last) {
  FakeDevice device;
  device.name = name;
  Gid link_local{0xFE, 0x80};
  link_local[15] = last;
  device.gids = {{IBV_GID_TYPE_ROCE_V2, link_local}, {IBV_GID_TYPE_ROCE_V2, ipv4_gid(10, 9, 0, last)}};
  return device;
}

template <typename T, typename Raw>
T& FakeVerbs::of(std::map<const Raw*, std::unique_ptr<T>>& table, const Raw* raw, const char* what) {
  const auto found = table.find(raw);
  if (found == table.end()) misuse(std::string("a ") + what + " was used that does not exist (any more)");
  return *found->second;
}

FakeVerbs::FakeVerbs(std::vector<FakeDevice> devices, std::uint64_t seed, std::shared_ptr<FakeFabric> fabric)
    : fabric_(std::move(fabric)), random_(seed) {
  for (FakeDevice& facts : devices) {
    auto device = std::make_unique<Device>();
    std::snprintf(device->raw.name, sizeof device->raw.name, "%s", facts.name.c_str());
    device->raw.transport_type = facts.transport;
    device->facts = std::move(facts);
    devices_.push_back(std::move(device));
  }
  thread_ = std::thread([this] { run(); });
}

FakeVerbs::~FakeVerbs() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [raw, qp] : qps_) withdraw(*qp);
  for (const auto& [raw, mr] : mrs_) withdraw(*mr);
}

template <typename Condition>
bool FakeVerbs::wait_until(Lock& lock, Condition condition) {
  return changed_.wait_for(lock, std::chrono::seconds(60), condition);
}

FakeVerbs::Device* FakeVerbs::device_named(const std::string& name) {
  for (const auto& device : devices_) {
    if (device->facts.name == name) return device.get();
  }
  misuse("no device " + name);
}

std::size_t FakeVerbs::waiting() const {
  std::size_t count = 0;
  for (const auto& [raw, qp] : qps_) {
    if (qp->raw.state == IBV_QPS_RTS) count += qp->requests.size();
  }
  return count;
}

// --- What tests do.

void FakeVerbs::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}
void FakeVerbs::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}
bool FakeVerbs::step(std::size_t count) {
  Lock lock(mutex_);
  if (!wait_until(lock, [&] { return waiting() >= count; })) return false;
  for (std::size_t i = 0; i < count; ++i) carry_out_one(lock);
  return true;
}
bool FakeVerbs::wait_for_requests(std::size_t count) {
  Lock lock(mutex_);
  return wait_until(lock, [&] { return waiting() >= count; });
}
void FakeVerbs::fail_next(ibv_wc_status status) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(status);
}
void FakeVerbs::hold_completions() {
  const std::lock_guard lock(mutex_);
  completions_held_ = true;
}
void FakeVerbs::release_completions() {
  const std::lock_guard lock(mutex_);
  completions_held_ = false;
  // Each queue pair's own stay in order.
  std::map<std::uint32_t, std::vector<std::pair<Cq*, ibv_wc>>, std::greater<>> by_queue_pair;
  for (const auto& each : std::exchange(withheld_, {})) by_queue_pair[each.second.qp_num].push_back(each);
  for (const auto& [number, completions] : by_queue_pair) {
    for (const auto& [cq, completion] : completions) deliver(*cq, completion);
  }
}
void FakeVerbs::hold_flushes() {
  const std::lock_guard lock(mutex_);
  flushes_held_ = true;
}
void FakeVerbs::release_flushes() {
  const std::lock_guard lock(mutex_);
  flushes_held_ = false;
  for (const auto& [raw, qp] : qps_) {
    if (qp->raw.state != IBV_QPS_ERR) continue;
    for (const Request& request : qp->requests) {
      if (request.pieces.empty()) continue;
      static_cast<void>(transfer(*qp, request, true));
      ++late_writes_;
    }
    flush(*qp);
  }
}
bool FakeVerbs::wait_for_held_flush() {
  Lock lock(mutex_);
  return wait_until(lock, [&] {
    return std::any_of(qps_.begin(), qps_.end(), [](const auto& each) {
      return each.second->raw.state == IBV_QPS_ERR && !each.second->requests.empty();
    });
  });
}
std::size_t FakeVerbs::late_writes() const {
  const std::lock_guard lock(mutex_);
  return late_writes_;
}
void FakeVerbs::fail_registrations(int error_number, std::size_t count) {
  const std::lock_guard lock(mutex_);
  fail_registrations_ = {error_number, count};
}
void FakeVerbs::fail_deregistrations(int error_number, std::size_t count) {
  const std::lock_guard lock(mutex_);
  fail_deregistrations_ = {error_number, count};
}
void FakeVerbs::fail_queue_pairs(int error_number, std::size_t count) {
  const std::lock_guard lock(mutex_);
  fail_queue_pairs_ = {error_number, count};
}
void FakeVerbs::fail_modify(ibv_qp_state state, int error_number) {
  const std::lock_guard lock(mutex_);
  fail_modify_[state] = error_number;
}
void FakeVerbs::fail_destroy(int error_number, std::size_t count) {
  const std::lock_guard lock(mutex_);
  fail_destroy_ = {error_number, count};
}
bool FakeVerbs::wait_for_failed_destroys() {
  Lock lock(mutex_);
  return wait_until(lock, [&] { return fail_destroy_.second == 0; });
}
void FakeVerbs::shut_modify(ibv_qp_state state) {
  const std::lock_guard lock(mutex_);
  shut_modify_[state] = true;
}
void FakeVerbs::shut_registrations() {
  const std::lock_guard lock(mutex_);
  shut_registrations_ = true;
}
void FakeVerbs::open_gates() {
  const std::lock_guard lock(mutex_);
  for (auto& [state, shut] : shut_modify_) shut = false;
  shut_registrations_ = false;
  changed_.notify_all();
}
bool FakeVerbs::wait_for_queue_pairs(std::size_t count) {
  Lock lock(mutex_);
  return wait_until(lock, [&] { return qps_.size() == count; });
}
bool FakeVerbs::wait_at_gate() {
  Lock lock(mutex_);
  return wait_until(lock, [&] { return at_gate_ != 0; });
}
void FakeVerbs::pass_gate(Lock& lock, const bool& shut) {
  if (!shut) return;
  ++at_gate_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !shut || ending_; });
  --at_gate_;
}

void FakeVerbs::set_port_state(const std::string& device, ibv_port_state state) {
  {
    const std::lock_guard lock(mutex_);
    Device* own = device_named(device);
    own->facts.state = state;
    announce_all(*own);
  }
  raise_event(device, state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}
void FakeVerbs::set_gid(const std::string& device, std::uint32_t index, const Gid& gid) {
  {
    const std::lock_guard lock(mutex_);
    Device* own = device_named(device);
    own->facts.gids.at(index).second = gid;
    announce_all(*own);
  }
  raise_event(device, IBV_EVENT_GID_CHANGE);
}
void FakeVerbs::raise_event(const std::string& device, ibv_event_type type) {
  const std::lock_guard lock(mutex_);
  const Device* wanted = device_named(device);
  for (const auto& [raw, context] : contexts_) {
    if (context->device != wanted) continue;
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = 1;
    context->events.push_back(event);
    static_cast<void>(::write(context->events_in.get(), "e", 1));
  }
}
void FakeVerbs::hang_up_events(const std::string& device) {
  const std::lock_guard lock(mutex_);
  const Device* wanted = device_named(device);
  for (const auto& [raw, context] : contexts_) {
    if (context->device == wanted) context->events_in.reset();
  }
}
void FakeVerbs::remove_device(const std::string& device) {
  {
    const std::lock_guard lock(mutex_);
    Device* gone = device_named(device);
    gone->present = false;
    for (const auto& [raw, qp] : qps_) {
      if (qp->device == gone) to_error(*qp);
    }
  }
  raise_event(device, IBV_EVENT_DEVICE_FATAL);
}
void FakeVerbs::restore_device(const std::string& device) {
  const std::lock_guard lock(mutex_);
  device_named(device)->present = true;
}

std::vector<unsigned> FakeVerbs::registration_access() const {
  const std::lock_guard lock(mutex_);
  std::vector<unsigned> access;
  for (const auto& [raw, mr] : mrs_) access.push_back(mr->access);
  return access;
}
std::vector<ibv_qp_attr> FakeVerbs::attributes(ibv_qp_state state) const {
  const std::lock_guard lock(mutex_);
  return state == IBV_QPS_RTR ? to_rtr_ : to_rts_;
}
std::size_t FakeVerbs::posted_chains() const {
  const std::lock_guard lock(mutex_);
  return chains_;
}
std::size_t FakeVerbs::signalled() const {
  const std::lock_guard lock(mutex_);
  return signalled_;
}
std::size_t FakeVerbs::posted() const {
  const std::lock_guard lock(mutex_);
  return posted_;
}
std::string FakeVerbs::leaks() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count != 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add(contexts_.size(), "contexts");
  add(pds_.size(), "protection domains");
  add(channels_.size(), "completion channels");
  add(cqs_.size(), "completion queues");
  add(mrs_.size(), "registrations");
  add(qps_.size(), "queue pairs");
  return text;
}

// --- VerbsApi: devices and memory.

ibv_device** FakeVerbs::get_device_list() {
  const std::lock_guard lock(mutex_);
  auto list = std::make_unique<ibv_device*[]>(devices_.size() + 1);
  std::size_t count = 0;
  for (const auto& device : devices_) {
    if (device->present) list[count++] = &device->raw;
  }
  return list.release();
}
void FakeVerbs::free_device_list(ibv_device** list) {
  const std::unique_ptr<ibv_device*[]> owned(list);
}
int FakeVerbs::numa_node(ibv_device* device) {
  const std::lock_guard lock(mutex_);
  return device_named(device->name)->facts.numa;
}
ibv_context* FakeVerbs::open_device(ibv_device* device) {
  const std::lock_guard lock(mutex_);
  auto context = std::make_unique<Context>();
  context->device = device_named(device->name);
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    misuse("no socket pair for events");
  context->events_fd = Fd(ends[0]);
  context->events_in = Fd(ends[1]);
  context->raw.device = device;
  context->raw.async_fd = context->events_fd.get();
  ibv_context* raw = &context->raw;
  contexts_[raw] = std::move(context);
  return raw;
}
int FakeVerbs::close_device(ibv_context* context) {
  const std::lock_guard lock(mutex_);
  of(contexts_, static_cast<const ibv_context*>(context), "context");
  for (const auto& [raw, pd] : pds_) {
    if (pd->context == context) misuse("a device was closed with a protection domain left");
  }
  contexts_.erase(context);
  return 0;
}
int FakeVerbs::query_device(ibv_context* context, ibv_device_attr& attributes) {
  const std::lock_guard lock(mutex_);
  const FakeDevice& facts = of(contexts_, static_cast<const ibv_context*>(context), "context").device->facts;
  attributes = {};
  attributes.phys_port_cnt = 1;
  attributes.max_qp = 1024;
  attributes.max_cqe = facts.max_cqe;
  attributes.max_sge = facts.max_sge;
  attributes.max_mr_size = facts.max_mr_size;
  attributes.max_qp_rd_atom = facts.max_rd_atomic;
  attributes.max_qp_init_rd_atom = facts.max_init_rd_atomic;
  return 0;
}
int FakeVerbs::query_port(ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) {
  const std::lock_guard lock(mutex_);
  if (port != 1) return EINVAL;
  const FakeDevice& facts = of(contexts_, static_cast<const ibv_context*>(context), "context").device->facts;
  attributes = {};
  attributes.state = facts.state;
  attributes.link_layer = facts.link_layer;
  attributes.lid = facts.lid;
  attributes.active_mtu = facts.mtu;
  attributes.max_msg_sz = facts.max_msg_sz;
  attributes.gid_tbl_len = static_cast<int>(facts.gids.size()) + 2;  // a table has empty places, too
  return 0;
}
int FakeVerbs::query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index, ibv_gid_entry& entry) {
  const std::lock_guard lock(mutex_);
  const FakeDevice& facts = of(contexts_, static_cast<const ibv_context*>(context), "context").device->facts;
  if (port != 1 || index >= facts.gids.size()) return ENODATA;
  entry = {};
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = facts.gids[index].first;
  std::memcpy(entry.gid.raw, facts.gids[index].second.data(), sizeof entry.gid.raw);
  return 0;
}
int FakeVerbs::next_async_event(ibv_context* context, ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  Context& own = of(contexts_, static_cast<const ibv_context*>(context), "context");
  if (own.events.empty()) return EAGAIN;
  event = own.events.front();
  own.events.pop_front();
  char byte = 0;
  static_cast<void>(::read(own.events_fd.get(), &byte, 1));
  return 0;
}
ibv_pd* FakeVerbs::alloc_pd(ibv_context* context) {
  const std::lock_guard lock(mutex_);
  of(contexts_, static_cast<const ibv_context*>(context), "context");
  auto pd = std::make_unique<ibv_pd>();
  pd->context = context;
  ibv_pd* raw = pd.get();
  pds_[raw] = std::move(pd);
  return raw;
}
int FakeVerbs::dealloc_pd(ibv_pd* pd) {
  const std::lock_guard lock(mutex_);
  of(pds_, static_cast<const ibv_pd*>(pd), "protection domain");
  for (const auto& [raw, mr] : mrs_) {
    if (mr->raw.pd == pd) return EBUSY;
  }
  for (const auto& [raw, qp] : qps_) {
    if (qp->raw.pd == pd) return EBUSY;
  }
  pds_.erase(pd);
  return 0;
}
ibv_mr* FakeVerbs::reg_mr(ibv_pd* pd, void* address, std::size_t length, unsigned access) {
  Lock lock(mutex_);
  pass_gate(lock, shut_registrations_);
  of(pds_, static_cast<const ibv_pd*>(pd), "protection domain");
  if (fail_registrations_.second != 0) {
    --fail_registrations_.second;
    errno = fail_registrations_.first;
    return nullptr;
  }
  const FakeDevice& facts =
      of(contexts_, static_cast<const ibv_context*>(pd->context), "context").device->facts;
  if (length == 0 || length > facts.max_mr_size) {
    errno = EINVAL;
    return nullptr;
  }
  auto mr = std::make_unique<Mr>();
  mr->raw.context = pd->context;
  mr->raw.pd = pd;
  mr->raw.addr = address;
  mr->raw.length = length;
  mr->raw.lkey = number_for(next_key_);
  mr->raw.rkey = number_for(next_key_);
  mr->access = access;
  announce(*mr);
  ibv_mr* raw = &mr->raw;
  mrs_[raw] = std::move(mr);
  return raw;
}
int FakeVerbs::dereg_mr(ibv_mr* mr) {
  const std::lock_guard lock(mutex_);
  if (fail_deregistrations_.second != 0) {
    --fail_deregistrations_.second;
    return fail_deregistrations_.first;
  }
  withdraw(of(mrs_, static_cast<const ibv_mr*>(mr), "registration"));
  mrs_.erase(mr);
  return 0;
}

}  // namespace stagewire::testing_support
