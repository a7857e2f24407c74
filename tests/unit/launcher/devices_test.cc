// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/devices.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

constexpr char kMountOfVersion2[] = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

// A machine's /proc and /sys in a folder.
class DevicesInAFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/devices_test_XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteGpu(const std::string& place, const std::string& uuid, const std::string& node,
                int minor) const {
    Write("/proc/driver/nvidia/gpus/" + place + "/information",
          "Model: \t\t NVIDIA H200\nIRQ:   \t\t 43\nGPU UUID: \t " + uuid + "\nBus Location: \t " +
              place + "\nDevice Minor: \t " + std::to_string(minor) + "\n");
    Write("/sys/bus/pci/devices/" + place + "/numa_node", node + "\n");
  }

  std::string root_;
};

TEST_F(DevicesInAFolderTest, GpusAreReadInTheOrderOfTheBus) {
  WriteGpu("0000:c1:00.0", "GPU-b", "1", 1);
  WriteGpu("0000:07:00.0", "GPU-a", "0", 0);
  const std::vector<Gpu> gpus = ReadGpus(root_);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-a");
  EXPECT_EQ(gpus[0].node, 0);
  EXPECT_EQ(gpus[1].uuid, "GPU-b");
  EXPECT_EQ(gpus[1].node, 1);
}

TEST_F(DevicesInAFolderTest, AGpuWhoseNodeTheFirmwareDoesNotSayIsAtTheFirst) {
  WriteGpu("0000:07:00.0", "GPU-" + std::string(8, '?'), "-1", 0);
  const std::vector<Gpu> gpus = ReadGpus(root_);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].node, 0);
  EXPECT_EQ(gpus[0].uuid, "");
}

TEST_F(DevicesInAFolderTest, OfAllGpusInProcThoseCountThatHaveADevice) {
  WriteGpu("0000:07:00.0", "GPU-a", "0", 0);
  WriteGpu("0000:c1:00.0", "GPU-b", "1", 1);
  EXPECT_EQ(CountGpuDevices(root_), 2);
  Write("/dev/nvidia1", "");
  Write("/dev/nvidiactl", "");
  Write("/dev/nvidia-uvm", "");
  EXPECT_EQ(CountGpuDevices(root_), 1);
  const std::vector<Gpu> gpus = ReadGpus(root_);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].uuid, "GPU-b");
}

TEST_F(DevicesInAFolderTest, OfADeviceThatProcDoesNotShowNothingIsKnown) {
  Write("/dev/nvidia0", "");
  ASSERT_EQ(ReadGpus(root_).size(), 1u);
  EXPECT_EQ(ReadGpus(root_)[0].uuid, "");
  EXPECT_EQ(ReadGpus(root_)[0].node, -1);
}

TEST_F(DevicesInAFolderTest, NoQuotaIsNoLimit) {
  EXPECT_EQ(ReadCpuQuota(root_), std::nullopt);
  Write("/proc/self/mountinfo", kMountOfVersion2);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpuQuota(root_), std::nullopt);
}

TEST_F(DevicesInAFolderTest, TheLeastQuotaAboveTheProcessCounts) {
  Write("/proc/self/mountinfo", kMountOfVersion2);
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root_), 3.5);
  Write("/sys/fs/cgroup/pod/container/cpu.max", "100000 50000\n");
  EXPECT_EQ(ReadCpuQuota(root_), 2.0);
}

TEST_F(DevicesInAFolderTest, TheQuotaOfCgroupVersion1) {
  Write("/proc/self/mountinfo",
        "36 31 0:33 /docker/a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  Write("/proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/docker/a\n0::/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota(root_), std::nullopt);
  // In a container the path is that of the host, and what is mounted is the container's own.
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(ReadCpuQuota(root_), 4.0);
}

TEST_F(DevicesInAFolderTest, ThreadsOfOneCoreCountOnce) {
  Write("/sys/devices/system/cpu/smt/active", "1\n");
  for (int cpu = 0; cpu < 8; ++cpu) {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  EXPECT_EQ(CountCores(root_, {0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(CountCores(root_, {1, 2, 6}), 2);
  Write("/sys/devices/system/cpu/smt/active", "0\n");
  EXPECT_EQ(CountCores(root_, {1, 2, 6}), 3);
}

TEST_F(DevicesInAFolderTest, ACpuOfWhichNothingIsSaidIsACore) {
  EXPECT_EQ(CountCores(root_, {0, 1, 2}), 3);
}

TEST(DevicesTest, WorkersOfANode) {
  const auto with = [](ProcPerNode kind) {
    Options options;
    options.proc_per_node = kind;
    options.proc_per_node_number = 3;
    return options;
  };
  EXPECT_EQ(*LocalWorldSize(with(ProcPerNode::kNumber), 8, 4), 3);
  EXPECT_EQ(*LocalWorldSize(with(ProcPerNode::kAuto), 8, 4), 8);
  EXPECT_EQ(*LocalWorldSize(with(ProcPerNode::kAuto), 0, 4), 4);
  EXPECT_EQ(*LocalWorldSize(with(ProcPerNode::kGpu), 8, 4), 8);
  EXPECT_EQ(*LocalWorldSize(with(ProcPerNode::kCpu), 8, 4), 4);
  EXPECT_TRUE(absl::IsNotFound(LocalWorldSize(with(ProcPerNode::kGpu), 0, 4).status()));
  EXPECT_FALSE(AllowedCpus().empty());
}

}  // namespace
}  // namespace ddprun
