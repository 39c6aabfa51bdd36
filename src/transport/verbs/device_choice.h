// Which device, port and GID a node uses, and why not the others. Pure functions over facts and options; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <stagewire/base/result.h>

#include "transport/verbs/device_facts.h"
#include "transport/verbs/verbs_options.h"

namespace stagewire {

struct DeviceChoice {
  std::string device;
  std::uint8_t port = 1;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint16_t lid = 0;
  std::uint32_t gid_index = 0;
  Gid gid{};
  std::string interface;
  std::uint32_t mtu = 1024;  ///< bytes: the lower of the port's and the option
};

/// One place that was looked at.
struct DeviceCandidate {
  std::string name;  ///< "rxe0 port 1 GID 1 (10.9.0.1, RoCE v2 on eth0)"
  bool chosen = false;
  std::string reason;
};

struct DeviceDecision {
  std::optional<DeviceChoice> choice;
  /// Why there is no choice: config (a configured name that does not exist, listing those that do),
  /// not_viable.
  std::optional<Error> error;
  std::vector<DeviceCandidate> considered;
};

/// `own_numa` as own_numa_node() gives it.
DeviceDecision choose_device(const VerbsOptions& options, const std::vector<DeviceFacts>& devices,
                             int own_numa);

/// One line for each candidate, indented by `indent`, the chosen one marked with '*'.
std::string to_table(const DeviceDecision& decision, std::size_t indent);

/// Whether the interface is one that container and virtual-machine runtimes make, or loopback.
bool is_container_interface(const std::string& name);

}  // namespace stagewire
