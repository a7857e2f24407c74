// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "launcher/doctor/doctor_rules.h"
#include "tests/unit/launcher/doctor_fixture.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  std::function<void(NodeFacts&)> change;
  const char* check;
  Health health;
  std::vector<const char*> words;
};

// One thing is wrong with one machine, and that is all that is found.
class DoctorMachine : public testing::TestWithParam<Case> {};

TEST_P(DoctorMachine, IsFound) {
  Checkup checkup = SoundCheckup(1);
  GetParam().change(checkup.nodes[0]);
  const std::vector<Finding> found = Complaints(checkup);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].check, GetParam().check);
  EXPECT_EQ(found[0].health, GetParam().health);
  EXPECT_EQ(found[0].nodes, std::vector<int>{0});
  for (const char* words : GetParam().words) EXPECT_THAT(found[0].text, HasSubstr(words));
}

constexpr std::int64_t kMiB = 1 << 20;

INSTANTIATE_TEST_SUITE_P(
    All, DoctorMachine,
    testing::Values(Case{"Files",
                         [](NodeFacts& node) { node.nofile = 256; },
                         "nofile",
                         Health::kWarning,
                         {"256 files", "ulimit -n 1024"}},
                    Case{"FilesByHardLimit",
                         [](NodeFacts& node) { node.nofile = node.nofile_hard = 512; },
                         "nofile",
                         Health::kWarning,
                         {"limits.conf"}},
                    Case{"PinnedMemory",
                         [](NodeFacts& node) { node.rdma = true; },
                         "memlock",
                         Health::kFail,
                         {"only 8 MiB may be locked", "ulimit -l"}},
                    Case{"ProcessesOfUser",
                         [](NodeFacts& node) { node.processes = 100; },
                         "processes",
                         Health::kWarning,
                         {"100 processes", "ulimit -u"}},
                    Case{"ProcessesOfCgroup",
                         [](NodeFacts& node) { node.processes_left = 50; },
                         "processes",
                         Health::kWarning,
                         {"room for 50", "pids.max"}},
                    Case{"NoShm",
                         [](NodeFacts& node) { node.shm_bytes = node.shm_free = kNoNumber; },
                         "shm",
                         Health::kFail,
                         {"not there", "mount a tmpfs"}},
                    Case{"SmallShm",
                         [](NodeFacts& node) { node.shm_bytes = node.shm_free = 16 * kMiB; },
                         "shm",
                         Health::kFail,
                         {"16 MiB free of 16 MiB", "--shm-size"}},
                    Case{"FullShm",
                         [](NodeFacts& node) { node.shm_free = kMiB; },
                         "shm",
                         Health::kFail,
                         {"1 MiB free of 16 GiB", "ls -l /dev/shm"}},
                    Case{"ShmOfDocker",
                         [](NodeFacts& node) { node.shm_bytes = node.shm_free = 64 * kMiB; },
                         "shm",
                         Health::kWarning,
                         {"64 MiB", "--ipc=host"}},
                    Case{"Memory",
                         [](NodeFacts& node) { node.memory_free = 700 * kMiB; },
                         "memory",
                         Health::kWarning,
                         {"700 MiB free for 2 workers"}},
                    Case{"MemoryOfCgroup",
                         [](NodeFacts& node) {
                           node.memory_free = 100 * kMiB;
                           node.memory_limit = 512 * kMiB;
                         },
                         "memory",
                         Health::kWarning,
                         {"100 MiB free of the cgroup's 512 MiB"}},
                    Case{"Quota",
                         [](NodeFacts& node) { node.cpu_quota = 1.5; },
                         "workers",
                         Health::kWarning,
                         {"2 workers share a CPU quota of 1.5"}},
                    Case{"TooManyWorkers",
                         [](NodeFacts& node) { node.workers = 9; },
                         "workers",
                         Health::kWarning,
                         {"9 workers on 8 CPUs"}},
                    Case{"WorkersThatShareAGpu",
                         [](NodeFacts& node) { node.gpus = 1; },
                         "workers",
                         Health::kWarning,
                         {"2 workers for 1 GPU", "--nproc-per-node gpu"}},
                    Case{"NoGpu",
                         [](NodeFacts& node) {
                           node.workers_error = "no GPU is here for --nproc-per-node gpu";
                         },
                         "workers",
                         Health::kFail,
                         {"no GPU is here"}},
                    Case{"Overcommit",
                         [](NodeFacts& node) { node.overcommit = 2; },
                         "kernel",
                         Health::kWarning,
                         {"vm.overcommit_memory is 2"}},
                    Case{"Stacks",
                         [](NodeFacts& node) { node.ptrace_scope = 2; },
                         "stacks",
                         Health::kWarning,
                         {"ptrace_scope is 2", "CAP_SYS_PTRACE"}},
                    Case{"DriverWithoutGpu",
                         [](NodeFacts& node) { node.driver = "580.95.05"; },
                         "gpu",
                         Health::kWarning,
                         {"580.95.05", "--gpus all"}}),
    [](const auto& one) { return one.param.name; });

TEST(DoctorMachines, WhatIsAllowedIsNoComplaint) {
  Checkup checkup = SoundCheckup(1);
  NodeFacts& node = checkup.nodes[0];
  node.rdma = true;
  node.memlock = kNoNumber;
  node.nofile = kNoNumber;
  node.ptrace_scope = 3;
  node.may_ptrace = true;
  node.cgroup = false;
  node.cpu_quota = 2;
  node.gpus = 2;
  node.gpu_models = {"NVIDIA H200"};
  EXPECT_TRUE(Complaints(checkup).empty());
}

}  // namespace
}  // namespace ddprun
