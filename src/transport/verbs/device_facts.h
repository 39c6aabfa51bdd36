// What there is: RDMA devices with their ports and GIDs, and the network interfaces that RoCE GIDs stand for.
// Gathered by calls that may take milliseconds (helper thread, or the caller's while a node starts); the
// facts are plain values that device_choice.h decides over.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <stagewire/base/result.h>

#include "transport/verbs/verbs_api.h"

namespace stagewire {

using Gid = std::array<std::uint8_t, 16>;
/// As IPv6 is written; RoCE v2's IPv4-mapped GIDs as IPv4.
std::string to_string(const Gid& gid);

enum class GidType : std::uint8_t { infiniband, roce_v1, roce_v2 };

struct GidFacts {
  std::uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::infiniband;
  std::string interface;                 ///< of a RoCE GID; empty where the system does not say
  bool address_is_on_interface = false;  ///< the GID's address is configured there now
};

struct PortFacts {
  std::uint8_t number = 1;
  bool active = false;
  std::string state;  ///< "active", "down", …
  std::uint8_t link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  std::uint16_t lid = 0;
  std::uint32_t mtu = 0;  ///< bytes, active
  std::vector<GidFacts> gids;
};

struct DeviceFacts {
  std::string name;
  bool iwarp = false;
  int numa_node = -1;
  std::string problem;  ///< why it could not be asked; empty: it was
  std::vector<PortFacts> ports;
};

/// An address of an interface of this host, in the form of a GID.
struct InterfaceAddress {
  std::string interface;
  Gid gid{};
};
/// All IPv4 (mapped) and IPv6 addresses of this host. Errors: io.
Result<std::vector<InterfaceAddress>> interface_addresses();

/// Opens each device in turn and asks it. A device that fails keeps its `problem`.
std::vector<DeviceFacts> gather_device_facts(VerbsApi& api, const std::vector<InterfaceAddress>& addresses);

/// The NUMA node that this process' memory prefers: the node of all CPUs it may run on, or -1 if they are on
/// several.
int own_numa_node();

}  // namespace stagewire
