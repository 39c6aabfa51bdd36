// Which device, port and GID is chosen, and what is said of the others. Facts are made up; no device is
// touched.
#include "transport/verbs/device_choice.h"

#include <gtest/gtest.h>
#include <string>

#include "../support.h"
#include "fake/fake_verbs.h"

namespace stagewire::testing_support {
namespace {

GidFacts gid(std::uint32_t index, const Gid& value, GidType type = GidType::roce_v2,
             const std::string& interface = "eth0", bool there = true) {
  return {index, value, type, interface, there};
}
Gid link_local() {
  Gid value{0xFE, 0x80};
  value[15] = 1;
  return value;
}
DeviceFacts roce(const std::string& name, std::vector<GidFacts> gids, int numa = -1) {
  DeviceFacts device;
  device.name = name;
  device.numa_node = numa;
  PortFacts port;
  port.active = true;
  port.state = "active";
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.mtu = 4096;
  port.gids = std::move(gids);
  device.ports.push_back(std::move(port));
  return device;
}
std::string reason_of(const DeviceDecision& decision, const std::string& part) {
  for (const DeviceCandidate& candidate : decision.considered) {
    if (candidate.name.find(part) != std::string::npos) return candidate.reason;
  }
  return "(no candidate " + part + ")";
}
const Gid kRoutable = ipv4_gid(10, 9, 0, 1);

TEST(DeviceChoice, TakesTheRoutableGidOfTheInterface) {
  const DeviceDecision decision = choose_device(
      {},
      {roce("rxe0", {gid(0, link_local()), gid(1, kRoutable, GidType::roce_v1),
                     gid(2, ipv4_gid(172, 17, 0, 1), GidType::roce_v2, "docker0"), gid(3, kRoutable)})},
      -1);
  ASSERT_TRUE(decision.choice) << decision.error->to_string();
  EXPECT_EQ(decision.choice->gid_index, 3U);
  EXPECT_EQ(decision.choice->interface, "eth0");
  EXPECT_NE(reason_of(decision, "GID 0").find("link-local"), std::string::npos);
  EXPECT_NE(reason_of(decision, "GID 1").find("not RoCE v2"), std::string::npos);
  EXPECT_NE(reason_of(decision, "GID 2").find("container"), std::string::npos);
  const std::string table = to_table(decision, 4);
  EXPECT_NE(table.find("    * rxe0 port 1 GID 3 (10.9.0.1, RoCE v2 on eth0): chosen\n"), std::string::npos)
      << table;
}

TEST(DeviceChoice, TakesALesserGidWhereThereIsNoOtherAndSaysSo) {
  const DeviceDecision decision = choose_device({}, {roce("rxe0", {gid(0, link_local())})}, -1);
  ASSERT_TRUE(decision.choice);
  EXPECT_EQ(decision.choice->gid_index, 0U);
  EXPECT_NE(reason_of(decision, "GID 0").find("chosen, although"), std::string::npos);
}

TEST(DeviceChoice, TakesTheNearest) {
  const std::vector<DeviceFacts> devices{roce("far", {gid(0, kRoutable)}, 1),
                                         roce("unknown", {gid(0, kRoutable)}),
                                         roce("near", {gid(0, kRoutable)}, 0)};
  EXPECT_EQ(choose_device({}, devices, 0).choice->device, "near");
  EXPECT_EQ(choose_device({}, devices, 1).choice->device, "far");
  EXPECT_EQ(choose_device({}, devices, -1).choice->device, "far");  // the first
  EXPECT_NE(reason_of(choose_device({}, devices, 0), "far").find("NUMA node 1"), std::string::npos);
  // A near one that leads nowhere is worth less.
  EXPECT_EQ(
      choose_device({}, {roce("near", {gid(0, link_local())}, 0), roce("far", {gid(0, kRoutable)}, 1)}, 0)
          .choice->device,
      "far");
  // So is one whose address is on no interface.
  const GidFacts stray = gid(0, kRoutable, GidType::roce_v2, "eth0", false);
  EXPECT_EQ(
      choose_device({}, {roce("near", {stray}, 0), roce("far", {gid(0, kRoutable)}, 1)}, 0).choice->device,
      "far");
}

TEST(DeviceChoice, NamesOverride) {
  VerbsOptions options;
  options.device = "b";
  options.gid_index = 0;
  const std::vector<DeviceFacts> devices{roce("a", {gid(0, kRoutable)}),
                                         roce("b", {gid(0, link_local()), gid(1, kRoutable)})};
  const DeviceDecision decision = choose_device(options, devices, -1);
  ASSERT_TRUE(decision.choice);
  EXPECT_EQ(decision.choice->device, "b");
  EXPECT_EQ(decision.choice->gid_index, 0U);
  EXPECT_NE(reason_of(decision, "a").find("rdma_device names b"), std::string::npos);
  options.gid_index = 7;
  EXPECT_NE(choose_device(options, devices, -1).error->message().find("no GID 7"), std::string::npos);
  options.gid_index = -1;
  options.port = 2;
  EXPECT_NE(choose_device(options, devices, -1).error->message().find("rdma_port is 2"), std::string::npos);
}

TEST(DeviceChoice, AnUnknownNameListsThoseThatExist) {
  VerbsOptions options;
  options.device = "mlx5_9";
  const DeviceDecision decision = choose_device(options, {roce("rxe0", {}), roce("rxe1", {})}, -1);
  ASSERT_TRUE(decision.error);
  EXPECT_EQ(decision.error->kind(), ErrorKind::config);
  EXPECT_NE(decision.error->message().find("rxe0, rxe1"), std::string::npos);
}

TEST(DeviceChoice, RefusesWhatCannotWorkAndSaysWhy) {
  DeviceFacts iwarp = roce("iwarp0", {gid(0, kRoutable)});
  iwarp.iwarp = true;
  DeviceFacts down = roce("down0", {gid(0, kRoutable)});
  down.ports[0].active = false;
  down.ports[0].state = "down";
  DeviceFacts broken = roce("broken0", {});
  broken.problem = "it cannot be opened: Permission denied";
  const DeviceDecision decision = choose_device({}, {iwarp, down, broken, roce("bare0", {})}, -1);
  ASSERT_FALSE(decision.choice);
  EXPECT_EQ(decision.error->kind(), ErrorKind::not_viable);
  for (const char* part : {"remote write", "down", "Permission denied", "no address"})
    EXPECT_NE(decision.error->message().find(part), std::string::npos)
        << part << ": " << decision.error->message();
  EXPECT_NE(choose_device({}, {}, -1).error->message().find("no RDMA device"), std::string::npos);
}

TEST(DeviceChoice, InfiniBandGoesByLid) {
  DeviceFacts device = roce("mlx5_0", {gid(0, link_local(), GidType::infiniband, "")});
  device.ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  device.ports[0].lid = 17;
  device.ports[0].mtu = 2048;
  const DeviceDecision decision = choose_device({}, {device}, -1);
  ASSERT_TRUE(decision.choice);
  EXPECT_EQ(decision.choice->lid, 17);
  EXPECT_EQ(decision.choice->mtu, 2048U);
}

TEST(DeviceChoice, TheMtuOptionIsAnUpperBound) {
  VerbsOptions options;
  options.mtu = 1024;
  EXPECT_EQ(choose_device(options, {roce("a", {gid(0, kRoutable)})}, -1).choice->mtu, 1024U);
}

TEST(DeviceFacts, AreGatheredFromTheApi) {
  FakeDevice down = fake_roce("fake1", 2);
  down.state = IBV_PORT_DOWN;
  FakeDevice iwarp = fake_roce("fake2", 3);
  iwarp.transport = IBV_TRANSPORT_IWARP;
  FakeVerbs fake({fake_roce("fake0", 1), down, iwarp});
  const std::vector<InterfaceAddress> addresses{{"", ipv4_gid(10, 9, 0, 1)}};
  const std::vector<DeviceFacts> facts = gather_device_facts(fake, addresses);
  ASSERT_EQ(facts.size(), 3U);
  EXPECT_TRUE(facts[0].ports.at(0).active);
  ASSERT_EQ(facts[0].ports[0].gids.size(), 2U);
  EXPECT_FALSE(facts[0].ports[0].gids[0].address_is_on_interface);
  EXPECT_TRUE(facts[0].ports[0].gids[1].address_is_on_interface);
  EXPECT_EQ(facts[0].ports[0].mtu, 4096U);
  EXPECT_EQ(facts[1].ports.at(0).state, "down");
  EXPECT_TRUE(facts[2].iwarp);
  EXPECT_EQ(fake.leaks(), "");
}

TEST(DeviceFacts, KnowTheAddressesOfThisHost) {
  const auto addresses = interface_addresses();
  ASSERT_TRUE(addresses.ok());
  bool loopback = false;
  for (const InterfaceAddress& each : *addresses) loopback = loopback || to_string(each.gid) == "127.0.0.1";
  EXPECT_TRUE(loopback);
}

TEST(DeviceChoice, KnowsContainerInterfaces) {
  for (const char* name : {"docker0", "br-1a2b", "veth12", "cni0", "virbr0", "lo"})
    EXPECT_TRUE(is_container_interface(name)) << name;
  for (const char* name : {"eth0", "enp1s0", "ib0", "bond0", "bridge0"})
    EXPECT_FALSE(is_container_interface(name)) << name;
}

}  // namespace
}  // namespace stagewire::testing_support
