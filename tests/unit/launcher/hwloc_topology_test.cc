// SPDX-License-Identifier: Apache-2.0
// Machines that are not there, through hwloc's own HWLOC_SYNTHETIC.
#include "launcher/placement/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <numeric>

#include "launcher/placement/devices.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

CpuSet UpTo(int count) {
  CpuSet cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

class HwlocTopologyTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("HWLOC_SYNTHETIC"); }

  static Topology Read(const char* description, const CpuSet& allowed) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    auto topology = ReadTopology(allowed);
    EXPECT_TRUE(topology.ok()) << topology.status();
    return topology.value_or(Topology{});
  }
};

TEST_F(HwlocTopologyTest, SocketsNodesCachesCoresAndThreads) {
  const Topology topology = Read("pack:2 numa:2 l3:2 core:2 pu:2", UpTo(32));
  ASSERT_EQ(topology.size(), 32u);
  EXPECT_EQ(topology[0], (Cpu{.id = 0, .core = 0, .cache = 0, .node = 0, .package = 0}));
  EXPECT_EQ(topology[3], (Cpu{.id = 3, .core = 2, .cache = 0, .node = 0, .package = 0}));
  EXPECT_EQ(topology[7], (Cpu{.id = 7, .core = 6, .cache = 4, .node = 0, .package = 0}));
  EXPECT_EQ(topology[31], (Cpu{.id = 31, .core = 30, .cache = 28, .node = 3, .package = 1}));
}

TEST_F(HwlocTopologyTest, CpusThatMayNotBeUsedStillSayWhereACoreBegins) {
  EXPECT_THAT(Read("pack:1 numa:1 l3:1 core:2 pu:2", {1, 2}),
              ElementsAre(Cpu{.id = 1, .core = 0, .cache = 0, .node = 0, .package = 0},
                          Cpu{.id = 2, .core = 2, .cache = 0, .node = 0, .package = 0}));
}

TEST_F(HwlocTopologyTest, TheLastLevelIsWhatTheMachineHas) {
  EXPECT_EQ(Read("pack:1 numa:1 l2:2 core:2 pu:1", UpTo(4))[3].cache, 2);
  EXPECT_EQ(Read("pack:1 numa:1 core:2 pu:1", UpTo(2))[1].cache, -1);
}

TEST_F(HwlocTopologyTest, OfTwoMemoriesOfOneCpuTheFirstIsItsNode) {
  const Topology topology = Read("pack:2 [numa] [numa] core:2 pu:1", UpTo(4));
  ASSERT_EQ(topology.size(), 4u);
  EXPECT_EQ(topology[0].node, 0);
  EXPECT_EQ(topology[3].node, 2);
  EXPECT_EQ(topology[3].package, 1);
}

TEST_F(HwlocTopologyTest, ThisMachineHasTheCpusThatItAllows) {
  const CpuSet allowed = AllowedCpus();
  const auto topology = ReadTopology(allowed);
  ASSERT_TRUE(topology.ok()) << topology.status();
  CpuSet ids;
  for (const Cpu& cpu : *topology) ids.push_back(cpu.id);
  EXPECT_EQ(ids, allowed);
}

TEST_F(HwlocTopologyTest, LeavesNoVariableBehind) {
  Read("pack:1 numa:1 core:1 pu:1", {0});
  EXPECT_EQ(getenv("HWLOC_PLUGINS_PATH"), nullptr);
}

TEST_F(HwlocTopologyTest, AMachineWithNoneOfTheAllowedCpusCannotBeRead) {
  setenv("HWLOC_SYNTHETIC", "pack:1 numa:1 core:1 pu:1", 1);
  EXPECT_TRUE(absl::IsUnavailable(ReadTopology({7}).status()));
}

}  // namespace
}  // namespace ddprun
