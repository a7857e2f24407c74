// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/doctor_fixture.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

auto IsComplaint(const char* check, Health health, std::vector<int> nodes,
                 testing::Matcher<std::string> text) {
  return AllOf(Field(&Finding::check, check), Field(&Finding::health, health),
               Field(&Finding::nodes, nodes), Field(&Finding::text, text));
}

TEST(DoctorRules, SoundNodesHaveNothingToComplainOf) {
  EXPECT_THAT(Complaints(SoundCheckup(1)), IsEmpty());
  EXPECT_THAT(Complaints(SoundCheckup(3)), IsEmpty());
  EXPECT_EQ(ExitCodeOf(Diagnose(SoundCheckup(3))), 0);
}

TEST(DoctorRules, WhatIsEqualOnSeveralNodesIsOneFinding) {
  Checkup checkup = SoundCheckup(4);
  for (const std::size_t node : {1u, 2u, 3u}) checkup.nodes[node].nofile = 256;
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("nofile", Health::kWarning, {1, 2, 3}, HasSubstr("256"))));
}

TEST(DoctorRules, NodesThatDidNotComeAreNamed) {
  Checkup checkup = SoundCheckup(4);
  checkup.nodes = {SoundNode(0), SoundNode(2)};
  checkup.pairs.clear();
  const std::vector<Finding> found = Complaints(checkup);
  EXPECT_THAT(found,
              ElementsAre(IsComplaint("nodes", Health::kFail, {},
                                      AllOf(HasSubstr("nodes 1,3 of 4 did not come within 10 s"),
                                            HasSubstr("--node-rank")))));
  EXPECT_EQ(ExitCodeOf(found), 1);
}

TEST(DoctorRules, NodesWithoutNumbersAreCounted) {
  Checkup checkup = SoundCheckup(4);
  checkup.nodes = {SoundNode(0), SoundNode(1), SoundNode(2)};
  checkup.numbered = false;
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("nodes", Health::kFail, {}, HasSubstr("1 node of 4 did"))));
  checkup.by_head = true;
  EXPECT_THAT(
      Complaints(checkup),
      ElementsAre(IsComplaint("nodes", Health::kFail, {}, HasSubstr("1 of 4 hosts take no part"))));
}

TEST(DoctorRules, AloneForAReason) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes = {SoundNode(1)};
  checkup.pairs.clear();
  checkup.rendezvous_error = "the tokens differ";
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("nodes", Health::kFail, {},
                                      HasSubstr("not met: the tokens differ. What follows"))));
}

TEST(DoctorRules, AMasterNameThatIsLoopbackThere) {
  Checkup checkup = SoundCheckup(2);
  NodeFacts& first = checkup.nodes[0];
  first.hosts_service = true;
  first.service_port = 29500;
  first.master_addr = "host0";
  first.master_resolved = "127.0.1.1";
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("address", Health::kWarning, {0},
                                      AllOf(HasSubstr("--master-addr host0 is 127.0.1.1 here"),
                                            HasSubstr("give the address")))));
  first.master_addr = "127.0.0.1";  // it was meant
  first.master_resolved = "127.0.0.1";
  EXPECT_THAT(Complaints(checkup), IsEmpty());
}

TEST(DoctorRules, NamesThatLeadNowhere) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[1].interface.clear();
  checkup.nodes[1].name_address = "127.0.1.1";
  checkup.nodes[0].name_seconds = 10;
  EXPECT_THAT(
      Complaints(checkup),
      UnorderedElementsAre(IsComplaint("address", Health::kWarning, {1}, HasSubstr("127.0.1.1")),
                           IsComplaint("address", Health::kWarning, {0}, HasSubstr("takes 10 s"))));
}

TEST(DoctorRules, VariablesOfInterfaces) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].gloo_socket_ifname = "eth7";
  checkup.nodes[1].nccl_socket_ifname = "=lo";
  EXPECT_THAT(Complaints(checkup),
              UnorderedElementsAre(IsComplaint("address", Health::kFail, {0},
                                               HasSubstr("GLOO_SOCKET_IFNAME=eth7 is no interface "
                                                         "that is up here (lo, eth0)")),
                                   IsComplaint("address", Health::kWarning, {1},
                                               HasSubstr("another interface than eth0"))));
}

TEST(DoctorRules, HowNcclAndGlooReadTheirs) {
  EXPECT_TRUE(NcclAllows("eth", "eth0"));
  EXPECT_TRUE(NcclAllows("ib,eth", "eth0"));
  EXPECT_TRUE(NcclAllows("=eth0:4000", "eth0"));
  EXPECT_FALSE(NcclAllows("=eth", "eth0"));
  EXPECT_FALSE(NcclAllows("^eth", "eth0"));
  EXPECT_TRUE(NcclAllows("^docker,lo", "eth0"));
  EXPECT_FALSE(NcclAllows("^=eth0", "eth0"));
  EXPECT_TRUE(NcclAllows("^=eth", "eth0"));
  EXPECT_TRUE(GlooNames("lo,eth0", "eth0"));
  EXPECT_FALSE(GlooNames("eth", "eth0"));
}

TEST(DoctorRules, RoutesAndBridges) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].default_routes = 2;
  checkup.nodes[1].interface = "docker0";
  checkup.nodes[1].interfaces[1].name = "docker0";
  EXPECT_THAT(Complaints(checkup),
              UnorderedElementsAre(
                  IsComplaint("address", Health::kWarning, {0}, HasSubstr("2 default routes")),
                  IsComplaint("address", Health::kWarning, {1}, HasSubstr("over docker0"))));
}

TEST(DoctorRules, PacketsOfTwoSizes) {
  Checkup checkup = SoundCheckup(3);
  checkup.nodes[2].interfaces[1].mtu = 9000;
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("mtu", Health::kWarning, {0, 1, 2},
                                      HasSubstr("1500 on nodes 0-1, 9000 on node 2"))));
}

TEST(DoctorRules, APortThatIsTaken) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[0].hosts_service = true;
  checkup.nodes[0].service_port = 29500;
  EXPECT_THAT(Complaints(checkup), IsEmpty());
  checkup.nodes[0].service_port_holder = "python3 (pid 17)";
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("port", Health::kFail, {0},
                                      HasSubstr("29500 is in use by python3 (pid 17)"))));
}

TEST(DoctorRules, WaysThatAreShut) {
  Checkup checkup = SoundCheckup(3);
  checkup.nodes[0].ephemeral_ports = "32768-60999";
  for (PairFacts& pair : checkup.pairs) {
    if (pair.to == 2) pair.error = "no answer";
  }
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint(
                  "connections", Health::kFail, {0, 1},
                  AllOf(HasSubstr("no way to node 2: no answer"), HasSubstr("(32768-60999)")))));
}

TEST(DoctorRules, FarNodesAndSlowLinks) {
  Checkup checkup = SoundCheckup(3);
  checkup.pairs[0].rtt_seconds = 0.02;
  for (PairFacts& pair : checkup.pairs) {
    if (pair.from == 1 && pair.to == 2) pair.bytes_per_second = 1e8;
  }
  EXPECT_THAT(
      Complaints(checkup),
      ElementsAre(IsComplaint("connections", Health::kWarning, {}, HasSubstr("at most 20.0 ms")),
                  IsComplaint("bandwidth", Health::kWarning, {},
                              HasSubstr("node 1 to node 2: 100 MB/s, others have 1.0 GB/s"))));
  for (PairFacts& pair : checkup.pairs) {
    pair.rtt_seconds = 1e-4;
    if (pair.bytes_per_second > 0) pair.bytes_per_second = 1e7;
  }
  EXPECT_THAT(Complaints(checkup), ElementsAre(IsComplaint("bandwidth", Health::kWarning, {},
                                                           HasSubstr("10 MB/s, less than"))));
}

TEST(DoctorRules, ClocksThatDisagree) {
  Checkup checkup = SoundCheckup(3);
  for (PairFacts& pair : checkup.pairs) {
    if (pair.to == 0 && pair.from == 2) pair.skew_seconds = 90;
    if (pair.to == 0 && pair.from == 1) pair.skew_seconds = -2.5;
  }
  EXPECT_THAT(
      Complaints(checkup),
      UnorderedElementsAre(
          IsComplaint("clock", Health::kWarning, {2}, HasSubstr("90.0 s behind node 0 (+- 50 us)")),
          IsComplaint("clock", Health::kWarning, {1}, HasSubstr("2.5 s ahead of node 0"))));
}

TEST(DoctorRules, ClocksThatMayAgreeAreNoneOfIt) {
  Checkup checkup = SoundCheckup(2);
  for (PairFacts& pair : checkup.pairs) {
    pair.skew_seconds = 1.5;
    pair.skew_uncertainty = 1;
  }
  EXPECT_THAT(Complaints(checkup), IsEmpty());
}

TEST(DoctorRules, ASecretThatCannotBeUsed) {
  Checkup checkup = SoundCheckup(2);
  checkup.nodes[1].secret_error = "others can read the file";
  EXPECT_THAT(Complaints(checkup),
              ElementsAre(IsComplaint("secret", Health::kFail, {1}, "others can read the file")));
}

TEST(DoctorRules, SizesInWords) {
  EXPECT_EQ(BytesText(12), "12 bytes");
  EXPECT_EQ(BytesText(16 << 20), "16 MiB");
  EXPECT_EQ(BytesText((std::int64_t{3} << 30) + (1 << 29)), "3.5 GiB");
}

}  // namespace
}  // namespace ddprun
