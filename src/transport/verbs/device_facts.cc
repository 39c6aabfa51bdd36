// See device_facts.h.
#include "transport/verbs/device_facts.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <system_error>

namespace stagewire {

namespace {

bool is_mapped_ipv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         gid[10] == 0xFF && gid[11] == 0xFF;
}

std::string state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "init (no subnet manager has configured it)";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
    case IBV_PORT_NOP:
      break;
  }
  return "unknown";
}

GidType type_of(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::roce_v1;
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::roce_v2;
    default:
      return GidType::infiniband;
  }
}

std::string interface_name(unsigned index) {
  std::array<char, IF_NAMESIZE> name{};
  return index != 0 && ::if_indextoname(index, name.data()) != nullptr ? name.data() : std::string();
}

std::vector<GidFacts> gather_gids(VerbsApi& api, ibv_context* context, std::uint8_t port, int count,
                                  const std::vector<InterfaceAddress>& addresses) {
  std::vector<GidFacts> gids;
  for (int i = 0; i < count; ++i) {
    ibv_gid_entry entry{};
    if (api.query_gid(context, port, static_cast<std::uint32_t>(i), entry) != 0) continue;
    GidFacts facts;
    facts.index = static_cast<std::uint32_t>(i);
    std::memcpy(facts.gid.data(), entry.gid.raw, facts.gid.size());
    if (facts.gid == Gid{}) continue;
    facts.type = type_of(entry.gid_type);
    facts.interface = interface_name(entry.ndev_ifindex);
    facts.address_is_on_interface = std::any_of(addresses.begin(), addresses.end(), [&](const auto& address) {
      return address.gid == facts.gid && (facts.interface.empty() || address.interface == facts.interface);
    });
    gids.push_back(std::move(facts));
  }
  return gids;
}

DeviceFacts gather_one(VerbsApi& api, ibv_device* device, const std::vector<InterfaceAddress>& addresses) {
  DeviceFacts facts;
  facts.name = device->name;
  facts.iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
  facts.numa_node = api.numa_node(device);
  const auto close = [&api](ibv_context* context) { api.close_device(context); };
  const std::unique_ptr<ibv_context, decltype(close)> context(api.open_device(device), close);
  if (!context) {
    facts.problem = Error::from_errno(errno, "it cannot be opened").message();
    return facts;
  }
  ibv_device_attr attributes{};
  if (const int failed = api.query_device(context.get(), attributes); failed != 0) {
    facts.problem = Error::from_errno(failed, "it cannot be asked (ibv_query_device)").message();
    return facts;
  }
  for (unsigned number = 1; number <= attributes.phys_port_cnt; ++number) {
    PortFacts port;
    port.number = static_cast<std::uint8_t>(number);
    ibv_port_attr asked{};
    if (const int failed = api.query_port(context.get(), port.number, asked); failed != 0) {
      port.state = Error::from_errno(failed, "unknown (ibv_query_port)").message();
      facts.ports.push_back(std::move(port));
      continue;
    }
    port.active = asked.state == IBV_PORT_ACTIVE;
    port.state = state_name(asked.state);
    port.link_layer = asked.link_layer;
    port.lid = asked.lid;
    port.mtu = 128U << static_cast<unsigned>(asked.active_mtu);
    port.gids = gather_gids(api, context.get(), port.number, asked.gid_tbl_len, addresses);
    facts.ports.push_back(std::move(port));
  }
  return facts;
}

}  // namespace

std::string to_string(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_mapped_ipv4(gid)) {
    ::inet_ntop(AF_INET, gid.data() + 12, text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  }
  return text.data();
}

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return Error::from_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    InterfaceAddress address;
    address.interface = each->ifa_name;
    if (each->ifa_addr->sa_family == AF_INET) {
      sockaddr_in in{};
      std::memcpy(&in, each->ifa_addr, sizeof in);
      address.gid[10] = address.gid[11] = 0xFF;
      std::memcpy(address.gid.data() + 12, &in.sin_addr, 4);
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 in6{};
      std::memcpy(&in6, each->ifa_addr, sizeof in6);
      std::memcpy(address.gid.data(), &in6.sin6_addr, 16);
    } else {
      continue;
    }
    addresses.push_back(std::move(address));
  }
  return addresses;
}

std::vector<DeviceFacts> gather_device_facts(VerbsApi& api, const std::vector<InterfaceAddress>& addresses) {
  std::vector<DeviceFacts> all;
  const auto free = [&api](ibv_device** list) { api.free_device_list(list); };
  const std::unique_ptr<ibv_device*, decltype(free)> list(api.get_device_list(), free);
  for (ibv_device** device = list.get(); device != nullptr && *device != nullptr; ++device) {
    all.push_back(gather_one(api, *device, addresses));
  }
  return all;
}

int own_numa_node() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  int node = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    for (const auto& inside : std::filesystem::directory_iterator(entry.path(), error)) {
      const std::string cpu = inside.path().filename().string();
      if (!cpu.starts_with("cpu") || cpu.size() == 3 || cpu[3] < '0' || cpu[3] > '9') continue;
      const int number = std::atoi(cpu.c_str() + 3);
      if (number >= CPU_SETSIZE || !CPU_ISSET(number, &allowed)) continue;
      const int here = std::atoi(name.c_str() + 4);
      if (node != -1 && node != here) return -1;
      node = here;
      break;
    }
  }
  return node;
}

}  // namespace stagewire
