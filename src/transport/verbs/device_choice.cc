// See device_choice.h. Candidates are port-and-GID pairs; each gets a rank or a reason against it.
#include "transport/verbs/device_choice.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

namespace stagewire {

namespace {

constexpr std::array<std::string_view, 12> kContainerPrefixes{
    "docker", "br-", "veth", "cni", "virbr", "flannel", "cali", "cbr", "lxc", "podman", "vxlan", "tunl"};

/// How good an address is, the lowest best.
enum class Reach : std::uint8_t { routable, elsewhere, container, link_local };

bool is_link_local(const Gid& gid) {
  if (gid[0] == 0xFE && (gid[1] & 0xC0U) == 0x80) return true;  // fe80::/10, RFC 4291
  const bool mapped = gid[10] == 0xFF && gid[11] == 0xFF &&
                      std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t b) { return b == 0; });
  // 169.254/16 (RFC 3927), and loopback, which leads nowhere else either.
  return mapped && ((gid[12] == 169 && gid[13] == 254) || gid[12] == 127);
}
bool is_ipv4(const Gid& gid) {
  return gid[10] == 0xFF && gid[11] == 0xFF && gid[0] == 0;
}

struct Place {
  const DeviceFacts* device = nullptr;
  const PortFacts* port = nullptr;
  const GidFacts* gid = nullptr;  // null: InfiniBand without a GID
  Reach reach = Reach::routable;
  unsigned numa_distance = 1;  // 0 same node, 1 unknown, 2 another
  std::size_t candidate = 0;   // index in the decision's list
};

std::string name_of(const DeviceFacts& device, const PortFacts& port, const GidFacts* gid) {
  std::string name = device.name + " port " + std::to_string(port.number);
  if (gid == nullptr) return name;
  name += " GID " + std::to_string(gid->index) + " (" + to_string(gid->gid);
  if (gid->type == GidType::roce_v1) name += ", RoCE v1";
  if (gid->type == GidType::roce_v2) name += ", RoCE v2";
  if (!gid->interface.empty()) name += " on " + gid->interface;
  return name + ")";
}

Reach reach_of(const GidFacts& gid) {
  if (is_link_local(gid.gid)) return Reach::link_local;
  if (is_container_interface(gid.interface)) return Reach::container;
  return gid.address_is_on_interface ? Reach::routable : Reach::elsewhere;
}

std::string reason_against(Reach reach) {
  switch (reach) {
    case Reach::routable:
      return "another place is nearer or comes first";
    case Reach::elsewhere:
      return "its address is on no interface here";
    case Reach::container:
      return "its interface is a container bridge";
    case Reach::link_local:
      return "its address is link-local or loopback";
  }
  return {};
}

/// Every candidate with its reason; returns those that could be used.
std::vector<Place> usable_places(const VerbsOptions& options, const std::vector<DeviceFacts>& devices,
                                 int own_numa, std::vector<DeviceCandidate>& considered) {
  std::vector<Place> places;
  const auto reject = [&](std::string name, std::string reason) {
    considered.push_back({std::move(name), false, std::move(reason)});
  };
  for (const DeviceFacts& device : devices) {
    if (!options.device.empty() && device.name != options.device) {
      reject(device.name, "rdma_device names " + options.device);
      continue;
    }
    if (!device.problem.empty()) {
      reject(device.name, device.problem);
      continue;
    }
    if (device.iwarp) {
      // RFC 5040: the sink of an iWARP read is named by a key with remote write access.
      reject(device.name, "iWARP: the destination of a read would need remote write access");
      continue;
    }
    const unsigned distance = device.numa_node < 0 || own_numa < 0 ? 1U
                              : device.numa_node == own_numa       ? 0U
                                                                   : 2U;
    for (const PortFacts& port : device.ports) {
      const std::string port_name = name_of(device, port, nullptr);
      if (options.port != 0 && port.number != options.port) {
        reject(port_name, "rdma_port is " + std::to_string(options.port));
        continue;
      }
      if (!port.active) {
        reject(port_name, "the port is " + port.state);
        continue;
      }
      const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
      if (!ethernet && port.link_layer != IBV_LINK_LAYER_INFINIBAND) {
        reject(port_name, "its link layer is neither InfiniBand nor Ethernet");
        continue;
      }
      if (!ethernet) {
        const GidFacts* gid = nullptr;
        for (const GidFacts& each : port.gids) {
          const bool wanted = options.gid_index < 0
                                  ? gid == nullptr
                                  : each.index == static_cast<std::uint32_t>(options.gid_index);
          if (wanted) gid = &each;
        }
        if (options.gid_index >= 0 && gid == nullptr) {
          reject(port_name, "it has no GID " + std::to_string(options.gid_index));
          continue;
        }
        places.push_back({&device, &port, gid, Reach::routable, distance, considered.size()});
        reject(name_of(device, port, gid), {});
        continue;
      }
      bool any = false;
      for (const GidFacts& gid : port.gids) {
        const bool named =
            options.gid_index >= 0 && gid.index == static_cast<std::uint32_t>(options.gid_index);
        if (options.gid_index >= 0 && !named) continue;
        any = true;
        if (gid.type != GidType::roce_v2) {
          reject(name_of(device, port, &gid), "it is not RoCE v2, which alone can be routed");
          continue;
        }
        places.push_back({&device, &port, &gid, reach_of(gid), distance, considered.size()});
        reject(name_of(device, port, &gid), {});
      }
      if (!any) {
        reject(port_name, options.gid_index >= 0
                              ? "it has no GID " + std::to_string(options.gid_index)
                              : std::string("it has no GID: its interface has no address"));
      }
    }
  }
  return places;
}

}  // namespace

bool is_container_interface(const std::string& name) {
  if (name == "lo") return true;
  return std::any_of(kContainerPrefixes.begin(), kContainerPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

DeviceDecision choose_device(const VerbsOptions& options, const std::vector<DeviceFacts>& devices,
                             int own_numa) {
  DeviceDecision decision;
  if (devices.empty()) {
    decision.error = Error(ErrorKind::not_viable,
                           "not viable, because this host has no RDMA device (ibv_devices lists none; in a "
                           "container, /dev/infiniband has to be passed in)");
    return decision;
  }
  std::string names;
  bool named = options.device.empty();
  for (const DeviceFacts& device : devices) {
    names += (names.empty() ? "" : ", ") + device.name;
    named = named || device.name == options.device;
  }
  if (!named) {
    decision.error = Error(ErrorKind::config, "rdma_device '" + options.device +
                                                  "' does not exist; the devices of this host are: " + names);
    return decision;
  }
  const std::vector<Place> places = usable_places(options, devices, own_numa, decision.considered);
  const auto order = [](const Place& place) {
    // A place that leads out of the host before one of which that is not sure; then the nearest; then the
    // best address.
    return std::tuple(place.reach != Reach::routable, place.numa_distance, place.reach,
                      place.gid != nullptr && !is_ipv4(place.gid->gid));
  };
  const auto best = std::min_element(places.begin(), places.end(),
                                     [&](const Place& a, const Place& b) { return order(a) < order(b); });
  if (best == places.end()) {
    std::string why;
    for (const DeviceCandidate& candidate : decision.considered)
      why += (why.empty() ? "" : "; ") + candidate.name + ": " + candidate.reason;
    decision.error = Error(ErrorKind::not_viable, "not viable, because no RDMA port can be used: " + why);
    return decision;
  }
  for (const Place& place : places) {
    decision.considered[place.candidate].reason = place.numa_distance > best->numa_distance
                                                      ? "it is on NUMA node " +
                                                            std::to_string(place.device->numa_node) +
                                                            ", farther than the one chosen"
                                                      : reason_against(place.reach);
  }
  DeviceCandidate& chosen = decision.considered[best->candidate];
  chosen.chosen = true;
  chosen.reason = "chosen";
  if (best->reach != Reach::routable) chosen.reason += ", although " + reason_against(best->reach);
  DeviceChoice choice;
  choice.device = best->device->name;
  choice.port = best->port->number;
  choice.link_layer = best->port->link_layer;
  choice.lid = best->port->lid;
  choice.mtu = std::min(best->port->mtu, options.mtu);
  if (best->gid != nullptr) {
    choice.gid_index = best->gid->index;
    choice.gid = best->gid->gid;
    choice.interface = best->gid->interface;
  }
  decision.choice = std::move(choice);
  return decision;
}

std::string to_table(const DeviceDecision& decision, std::size_t indent) {
  std::string text;
  for (const DeviceCandidate& candidate : decision.considered) {
    text += std::string(indent, ' ') + (candidate.chosen ? "* " : "- ") + candidate.name + ": " +
            candidate.reason + "\n";
  }
  return text;
}

}  // namespace stagewire
