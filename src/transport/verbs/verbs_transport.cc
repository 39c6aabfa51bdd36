// See verbs_transport.h.
#include "transport/verbs/verbs_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "transport/bytes.h"
#include "transport/verbs/verbs_error.h"
#include "transport/verbs/verbs_link.h"

namespace stagewire {

namespace {

constexpr std::chrono::seconds kRetireAfter{2};

Status check_bounds(const char* option, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return Error(ErrorKind::config, std::string("verbs ") + option + " is " + std::to_string(value) +
                                      "; expected " + std::to_string(low) + " to " + std::to_string(high));
}

Status check_options(const VerbsOptions& options) {
  STAGEWIRE_TRY(check_bounds("mtu", options.mtu, 256, 4096));
  STAGEWIRE_TRY(check_bounds("service_level", options.service_level, 0, 15));
  STAGEWIRE_TRY(check_bounds("timeout", options.timeout, 1, 31));
  STAGEWIRE_TRY(check_bounds("retry_count", options.retry_count, 0, 7));
  STAGEWIRE_TRY(check_bounds("rnr_retry", options.rnr_retry, 0, 7));
  STAGEWIRE_TRY(check_bounds("queue_pairs", options.queue_pairs, 1, kMaxVerbsQueuesPerPeer));
  STAGEWIRE_TRY(check_bounds("max_queue_pairs", options.max_queue_pairs, 1, 65'536));
  STAGEWIRE_TRY(check_bounds("send_queue_depth", options.send_queue_depth, 1, 16'384));
  STAGEWIRE_TRY(check_bounds("chunk_size", options.chunk_size, 4096, 1U << 30U));
  STAGEWIRE_TRY(check_bounds("window", options.window, options.chunk_size, 1ULL << 40U));
  return check_bounds("mr_piece", options.mr_piece, 4096, 1ULL << 44U);
}

std::string without_prefix(const std::string& why) {
  constexpr std::string_view kPrefix = "not viable, because ";
  return why.starts_with(kPrefix) ? why.substr(kPrefix.size()) : why;
}

std::string describe(const DeviceChoice& choice) {
  std::string text = choice.device + " port " + std::to_string(choice.port);
  if (choice.link_layer == IBV_LINK_LAYER_ETHERNET) {
    text += ", RoCE v2, GID " + std::to_string(choice.gid_index) + " (" + to_string(choice.gid) +
            (choice.interface.empty() ? "" : " on " + choice.interface) + ")";
  } else {
    text += ", InfiniBand, LID " + std::to_string(choice.lid);
  }
  return text + ", MTU " + std::to_string(choice.mtu);
}

}  // namespace

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::create(const VerbsOptions& options, EventLoop& loop,
                                                               LoopPost post, std::shared_ptr<Logger> log,
                                                               Metrics& metrics, const OpenApi& open_api) {
  STAGEWIRE_TRY(check_options(options));
  std::unique_ptr<VerbsTransport> transport(
      new VerbsTransport(options, loop, std::move(post), std::move(log), metrics));
  Result<std::shared_ptr<VerbsApi>> api = open_api();
  if (!api.ok()) {
    transport->not_viable_ = api.error().message();
    return transport;
  }
  transport->api_ = std::move(*api);
  Opened opened = transport->open_device();
  if (opened.error && opened.error->kind() == ErrorKind::config) return *opened.error;
  transport->adopt(std::move(opened));
  return transport;
}

VerbsTransport::VerbsTransport(const VerbsOptions& options, EventLoop& loop, LoopPost post,
                               std::shared_ptr<Logger> log, Metrics& metrics)
    : host_{.options = options,
            .loop = loop,
            .post = std::move(post),
            .log = std::move(log),
            .counters = std::make_shared<VerbsCounters>(metrics),
            .device = nullptr,
            .problem = {},
            .registrations = nullptr,
            .links = {}},
      reopen_delay_(options.retry_first) {
  host_.registrations = std::make_unique<Registrations>(host_.post, host_.log, [this] { arm_register(); });
}

VerbsTransport::~VerbsTransport() {
  close();
}

VerbsTransport::Opened VerbsTransport::open_device() {
  Opened opened;
  opened.number = next_opening_++;
  Result<std::vector<InterfaceAddress>> addresses = interface_addresses();
  if (!addresses.ok()) host_.log->warn(addresses.error().to_string());
  const std::vector<DeviceFacts> facts =
      gather_device_facts(*api_, addresses.ok() ? *addresses : std::vector<InterfaceAddress>());
  opened.decision = choose_device(host_.options, facts, own_numa_node());
  if (!opened.decision.choice) {
    opened.error = opened.decision.error;
    return opened;
  }
  Result<std::shared_ptr<VerbsDevice>> device =
      VerbsDevice::open(api_, *opened.decision.choice, host_.options, host_.log,
                        [this, number = opened.number, post = host_.post,
                         alive = std::weak_ptr(alive_)](const ibv_async_event& event) {
                          post([this, number, event, alive] {
                            if (alive.lock()) on_event(number, event);
                          });
                        });
  if (!device.ok()) {
    opened.error = std::move(device).error();
    return opened;
  }
  opened.device = std::move(*device);
  return opened;
}

void VerbsTransport::adopt(Opened opened) {
  decision_ = std::move(opened.decision);
  if (opened.error) {
    const std::string why = without_prefix(opened.error->message());
    if (decision_.considered.empty()) {
      not_viable_ = "not viable, because " + why;
    } else {
      // There are adapters, and what keeps them from being used may pass: a port that is down, an address to
      // come.
      host_.problem = why;
      arm_reopen();
    }
    return;
  }
  host_.device = std::move(opened.device);
  opening_ = opened.number;
  reopen_delay_ = host_.options.retry_first;
  host_.registrations->set_device(host_.device);
  host_.log->info("verbs uses " + describe(host_.device->choice()));
  host_.problem.clear();
  for (VerbsLink* link : host_.links) link->on_device();
}

Viability VerbsTransport::viability() const {
  if (!not_viable_.empty()) return {false, not_viable_};
  // A device that is away for a while is the links' matter: sessions made now shall have it when it is back.
  if (!host_.problem.empty()) return {true, "but not at the moment, because " + host_.problem};
  return {true, describe(host_.device->choice()) + ", " + std::to_string(host_.options.queue_pairs) +
                    " queue pairs per peer"};
}

std::string VerbsTransport::explain() const {
  return to_table(decision_, 6);
}

std::string VerbsTransport::hello() const {
  verbs_wire::Hello hello;
  // Without a device now the links tell their peers when there is one.
  hello.usable = host_.device != nullptr;
  if (hello.usable) hello.port = host_.device->port();
  return verbs_wire::encode(hello);
}

Result<MemoryToken> VerbsTransport::export_memory(const ExportedMemory& memory) {
  STAGEWIRE_TRY(check_exportable(memory, name()));
  host_.registrations->add_exported(memory);
  MemoryToken token;
  token.token = verbs_link::make_token();
  return token;
}

void VerbsTransport::forget_memory(std::uint32_t memory, std::shared_ptr<const void> until) {
  host_.registrations->remove_exported(memory, std::move(until));
}

void VerbsTransport::add_receive_pool(const std::shared_ptr<Pool>& pool) {
  host_.registrations->add_receive_pool(pool);
}

Result<std::unique_ptr<Link>> VerbsTransport::connect(LinkChannel& channel, std::string_view peer_hello) {
  STAGEWIRE_ASSIGN(const verbs_wire::Hello hello, verbs_wire::decode_hello(peer_hello));
  return std::unique_ptr<Link>(std::make_unique<VerbsLink>(host_, channel, hello));
}

// --- The device's fate.

void VerbsTransport::set_problem(std::string problem) {
  host_.problem = std::move(problem);
  for (VerbsLink* link : host_.links) link->on_problem();
}

void VerbsTransport::on_event(std::uint64_t opening, const ibv_async_event& event) {
  const std::shared_ptr<VerbsDevice> device = host_.device;
  if (!device || opening != opening_) return;
  const std::string name = device->choice().device;
  const bool our_port = event.element.port_num == device->choice().port;
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      if (!our_port) return;
      host_.log->warn("the port of " + name + " went down; new reads take another route until it is back");
      return set_problem("port " + std::to_string(device->choice().port) + " of " + name + " is down");
    case IBV_EVENT_PORT_ACTIVE:
      if (!our_port) return;
      if (!host_.problem.empty()) host_.log->warn("the port of " + name + " is up again");
      return set_problem({});
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
      if (our_port) check_gid();
      return;
    case IBV_EVENT_DEVICE_FATAL:
      return lose_device("the device " + name + " has failed or was removed");
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      // What was posted to it is flushed, and the read's side sees to the rest.
      return host_.log->warn("a queue pair of " + name + " has failed (event " +
                             std::to_string(static_cast<int>(event.event_type)) + ")");
    case IBV_EVENT_CQ_ERR:
      return lose_device("the completion queue of " + name + " has failed");
    default:
      return host_.log->debug("event " + std::to_string(static_cast<int>(event.event_type)) + " of " + name);
  }
}

void VerbsTransport::check_gid() {
  const std::shared_ptr<VerbsDevice> device = host_.device;
  device->helper().post("asking for a GID", [this, device, post = host_.post, alive = std::weak_ptr(alive_)] {
    const DeviceChoice& choice = device->choice();
    if (!device->still_has_address()) {
      post([this, device, name = choice.device, alive] {
        if (alive.lock() && device == host_.device) lose_device("the address of " + name + " has changed");
      });
    }
  });
}

void VerbsTransport::lose_device(const std::string& why) {
  host_.log->error("verbs: " + why + "; running reads end, and new ones take another route until it is back");
  retired_.push_back(std::move(host_.device));
  host_.device = nullptr;
  host_.problem = why;
  for (VerbsLink* link : host_.links) link->on_device_lost(Error(ErrorKind::peer_lost, "verbs: " + why));
  host_.registrations->set_device(nullptr);
  arm_reopen();
  retire_when_quiet();
}

void VerbsTransport::arm_reopen() {
  host_.loop.cancel(reopen_timer_);
  reopen_timer_ = host_.loop.call_at(Deadline::in(reopen_delay_), [this] {
    reopen_timer_ = 0;
    reopen();
  });
  reopen_delay_ = std::min(2 * reopen_delay_, host_.options.retry_last);
}

void VerbsTransport::reopen() {
  opener_.post([this, post = host_.post, alive = std::weak_ptr(alive_)] {
    auto opened = std::make_shared<Opened>(open_device());
    post([this, opened, alive] {
      if (!alive.lock()) return;
      if (opened->error) {
        host_.log->debug("verbs: " + opened->error->to_string());
        decision_ = std::move(opened->decision);
        return arm_reopen();
      }
      adopt(std::move(*opened));
      host_.log->warn("verbs can be used now: " + describe(host_.device->choice()));
    });
  });
}

void VerbsTransport::arm_register() {
  if (register_timer_ != 0) return;
  register_timer_ = host_.loop.call_at(Deadline::in(host_.options.retry_last), [this] {
    register_timer_ = 0;
    host_.registrations->retry();
  });
}

void VerbsTransport::retire_when_quiet() {
  if (retire_timer_ != 0 || retired_.empty()) return;
  retire_timer_ = host_.loop.call_at(Deadline::in(kRetireAfter), [this] {
    retire_timer_ = 0;
    // Closed while its queue pairs are in use it could take them from under a read that is still being
    // fenced.
    std::erase_if(retired_, [this](const std::shared_ptr<VerbsDevice>& device) {
      if (device->queues() != 0) return false;
      opener_.post([device] { device->close(); });
      return true;
    });
    retire_when_quiet();
  });
}

void VerbsTransport::close() {
  // Every link is closed, and the loop has stopped or is where this runs. It may be gone when this comes
  // again.
  if (std::exchange(closed_, true)) return;
  opener_.stop();
  host_.loop.cancel(std::exchange(reopen_timer_, 0));
  host_.loop.cancel(std::exchange(retire_timer_, 0));
  host_.loop.cancel(std::exchange(register_timer_, 0));
  if (host_.device) host_.device->close();
  for (const auto& device : retired_) device->close();
}

}  // namespace stagewire
