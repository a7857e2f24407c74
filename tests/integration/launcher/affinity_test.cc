// SPDX-License-Identifier: Apache-2.0
// What of the machine the workers get, as they see it themselves.
#include <sched.h>

#include <algorithm>

#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AffinityTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    variables_["CUDA_VISIBLE_DEVICES"] = "";
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cpus_.push_back(cpu);
    }
  }
  // Two CPUs in one node, one thread a core: what the tests say of numbers holds for such a machine
  // and needs one.
  bool HasTwoCores() const {
    return cpus_.size() >= 2 && !std::filesystem::exists("/sys/devices/system/node/node1") && [] {
      std::ifstream file("/sys/devices/system/cpu/smt/active");
      int active = 0;
      return (file >> active) && active == 0;
    }();
  }

  std::vector<int> cpus_;
};

constexpr char kShowCpus[] =
    "grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS";

TEST_F(AffinityTest, AnExclusiveWorkerHasCpusThatNoOtherHas) {
  if (!HasTwoCores()) GTEST_SKIP() << "needs two cores in one NUMA node";
  auto run = Launch(
      {"--nproc-per-node", "2", "--numa-binding", "exclusive", "sh", "-c", "taskset -cp $$"});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  const auto list_of = [&](const std::string& rank) {
    const std::string label = "[" + rank + "] pid ";
    const std::size_t at = run->out().find(label);
    if (at == std::string::npos) return std::string();
    const std::size_t colon = run->out().find(": ", at);
    return run->out().substr(colon, run->out().find('\n', colon) - colon);
  };
  EXPECT_NE(list_of("0"), "");
  EXPECT_NE(list_of("1"), "");
  EXPECT_NE(list_of("0"), list_of("1"));
}

TEST_F(AffinityTest, AWorkerIsNotBoundUnlessAskedFor) {
  auto run = Launch({"sh", "-c", "taskset -cp $$ >&2; taskset -cp $PPID"});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  const auto list_in = [](const std::string& text) { return text.substr(text.rfind(": ")); };
  EXPECT_EQ(list_in(run->out()), list_in(run->err()));
}

TEST_F(AffinityTest, MemoryIsPreferredWhereTheCpusAre) {
  auto run = Launch({"--numa-binding", "node", "sh", "-c", "cat /proc/self/numa_maps"});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  if (run->out().empty()) GTEST_SKIP() << "this kernel does not show memory policies";
  auto plain = Launch({"sh", "-c", "cat /proc/self/numa_maps"});
  ASSERT_EQ(plain->Wait(), 0);
  EXPECT_THAT(run->out(), HasSubstr(" prefer:"));
  EXPECT_THAT(plain->out(), Not(HasSubstr(" prefer:")));
}

TEST_F(AffinityTest, ThreadsAreTheCoresOfTheBinding) {
  if (!HasTwoCores()) GTEST_SKIP() << "needs two cores in one NUMA node";
  const std::string share = std::to_string(cpus_.size() / 2);
  for (const char* mode : {"node", "socket"}) {
    auto run = Launch({"--nproc-per-node", "2", "--numa-binding", mode, "sh", "-c", kShowCpus});
    ASSERT_EQ(run->Wait(), 0) << run->err();
    EXPECT_THAT(run->out(), HasSubstr("threads " + share + "\n")) << mode;
  }
  auto alone = Launch({"--numa-binding", "node", "sh", "-c", kShowCpus});
  ASSERT_EQ(alone->Wait(), 0) << alone->err();
  EXPECT_THAT(alone->out(), HasSubstr("threads\n"));
}

TEST_F(AffinityTest, WhatCannotBeHadIsOneSentenceBeforeAnythingStarts) {
  auto run = Launch({"--nproc-per-node", "4000", "--numa-binding", "exclusive", "sh", "-c",
                     "touch " + folder_ + "/started"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), ::testing::StartsWith("ddprun: --numa-binding exclusive gives each"));
  EXPECT_EQ(std::count(run->err().begin(), run->err().end(), '\n'), 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/started"));
}

TEST_F(AffinityTest, VirtualLocalRanks) {
  variables_["CUDA_VISIBLE_DEVICES"] = "4,GPU-x";
  auto run = Launch({"--nproc-per-node", "2", "--virtual-local-rank", "sh", "-c",
                     "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE has $CUDA_VISIBLE_DEVICES"});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->out(), HasSubstr("[0] 0 of 2 has 4\n"));
  EXPECT_THAT(run->out(), HasSubstr("[1] 0 of 2 has GPU-x\n"));
}

}  // namespace
}  // namespace ddprun
