// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/accelerators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/placement/devices.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine's /dev and /sys in a folder.
class AcceleratorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/accelerators_XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text = "") const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::filesystem::create_symlink(target, root_ + path);
  }

  // As the kernel's KFD has it, CPUs first.
  void WriteKfdNode(int number, int simds, int render_minor = 0, int bus = 0) const {
    Write("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(number) + "/properties",
          "cpu_cores_count " + std::string(simds == 0 ? "64" : "0") + "\nsimd_count " +
              std::to_string(simds) + "\nlocation_id " + std::to_string(bus << 8) +
              "\ndomain 0\nunique_id " + std::to_string(simds == 0 ? 0 : 256 + number) +
              "\ndrm_render_minor " + std::to_string(render_minor) + "\n");
  }
  void WriteRocmServer(int gpus) const {
    Write("/dev/kfd");
    for (int number : {0, 1}) WriteKfdNode(number, 0);
    for (int gpu = 0; gpu < gpus; ++gpu) {
      WriteKfdNode(2 + gpu, 1216, 128 + gpu, 0x10 + gpu);
      Write("/dev/dri/renderD" + std::to_string(128 + gpu));
      WriteNode("0000:" + std::to_string(10 + gpu) + ":00.0", gpu / 4);
    }
  }
  void WriteNode(const std::string& address, int node) const {
    Write("/sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node) + "\n");
  }
  void WriteXpu(int minor, const std::string& address, const std::string& driver, int node) const {
    Write("/dev/dri/renderD" + std::to_string(minor));
    WriteNode(address, node);
    Link("/sys/bus/pci/devices/" + address + "/driver", "../../../bus/pci/drivers/" + driver);
    Link("/sys/class/drm/renderD" + std::to_string(minor) + "/device",
         "../../../bus/pci/devices/" + address);
  }

  Machine Find(const std::string& flags, const Variables& variables = {}) const {
    Machine machine;
    FindDevices(root_, ParsedLine(flags), From(variables), machine);
    return machine;
  }
  int Workers(const std::string& flags, const Variables& variables = {}) const {
    const auto places = PlaceWorkers(ParsedLine(flags), Find(flags, variables));
    return places.ok() ? static_cast<int>(places->size()) : -1;
  }

  std::string root_;
};

TEST_F(AcceleratorsTest, RocmGpusAreNodesWithSimds) {
  EXPECT_THAT(ReadRocmGpus(root_), IsEmpty());
  WriteRocmServer(10);
  const std::vector<Gpu> gpus = ReadRocmGpus(root_);
  ASSERT_EQ(gpus.size(), 10u);
  EXPECT_EQ(gpus[0].uuid, "GPU-0000000000000102");
  EXPECT_EQ(gpus[9].uuid, "GPU-000000000000010b");  // node 11 is behind node 2
  EXPECT_EQ(gpus[3].node, 0);
  EXPECT_EQ(gpus[8].node, 2);
  std::filesystem::remove(root_ + "/dev/dri/renderD129");  // not given to this container
  EXPECT_EQ(ReadRocmGpus(root_).size(), 9u);
  std::filesystem::remove(root_ + "/dev/kfd");
  EXPECT_THAT(ReadRocmGpus(root_), IsEmpty());
}

TEST_F(AcceleratorsTest, RocmGpusCountAsGpus) {
  WriteRocmServer(4);
  EXPECT_EQ(Workers("--nproc-per-node gpu"), 4);
  EXPECT_EQ(Workers("--nproc-per-node auto"), 4);
  EXPECT_EQ(Workers("--nproc-per-node xpu"), -1);
  EXPECT_EQ(Workers("--nproc-per-node gpu", {{"HIP_VISIBLE_DEVICES", "1,3"}}), 2);
  EXPECT_EQ(Workers("--nproc-per-node gpu", {{"CUDA_VISIBLE_DEVICES", "2"}}), 1);
  EXPECT_EQ(Workers("--nproc-per-node gpu", {{"ROCR_VISIBLE_DEVICES", "1,2,3"}}), 3);
  EXPECT_EQ(Workers("--nproc-per-node gpu",
                    {{"ROCR_VISIBLE_DEVICES", "3,1"}, {"HIP_VISIBLE_DEVICES", "0,1,2"}}),
            2);
}

TEST_F(AcceleratorsTest, WhatRocrLeavesIsNumberedAnew) {
  WriteRocmServer(8);
  const Machine machine =
      Find("--nproc-per-node gpu", {{"ROCR_VISIBLE_DEVICES", "6,GPU-0000000000000102"}});
  ASSERT_EQ(machine.gpus.size(), 2u);
  EXPECT_EQ(machine.gpus[0].node, 1);
  EXPECT_EQ(machine.gpus[1].node, 0);
}

TEST_F(AcceleratorsTest, EachWorkerGetsItsOwnByTheVariableOfItsKind) {
  WriteRocmServer(4);
  const std::string flags = "--nproc-per-node gpu --gpus-per-worker 2";
  const auto places = PlaceWorkers(ParsedLine(flags), Find(flags));
  ASSERT_TRUE(places.ok());
  ASSERT_EQ(places->size(), 2u);
  EXPECT_EQ((*places)[1].visible_devices, "2,3");
  EXPECT_STREQ(VisibleVariable((*places)[1].device_kind), "HIP_VISIBLE_DEVICES");
}

TEST_F(AcceleratorsTest, NvidiasComeFirst) {
  WriteRocmServer(4);
  Write("/dev/nvidia0");
  EXPECT_EQ(Workers("--nproc-per-node gpu"), 1);
  EXPECT_EQ(Find("--nproc-per-node auto").device_kind, DeviceKind::kNvidia);
}

TEST_F(AcceleratorsTest, XpusAreRenderNodesOfIntelsDrivers) {
  WriteXpu(130, "0000:29:00.0", "xe", 0);
  WriteXpu(129, "0000:9a:00.0", "i915", 1);
  WriteXpu(131, "0000:03:00.0", "amdgpu", 1);
  WriteXpu(128, "0000:00:02.0", "i915", 0);  // the processor's own
  const std::vector<Gpu> gpus = ReadXpus(root_, {.integrated = true});
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].node, 0);
  EXPECT_EQ(gpus[1].node, 1);
  EXPECT_EQ(Workers("--nproc-per-node xpu"), 2);
  EXPECT_EQ(Workers("--nproc-per-node auto"), 2);
  EXPECT_EQ(Workers("--nproc-per-node xpu", {{"ZE_AFFINITY_MASK", "1"}}), 1);
  EXPECT_EQ(Find("--nproc-per-node xpu").device_kind, DeviceKind::kXpu);
}

TEST_F(AcceleratorsTest, AnIntegratedGpuCountsWhereItIsAskedForAlone) {
  WriteXpu(128, "0000:00:02.0", "i915", 0);
  EXPECT_EQ(Workers("--nproc-per-node xpu"), 1);
  Machine machine = Find("--nproc-per-node auto");
  EXPECT_THAT(machine.gpus, IsEmpty());
}

TEST_F(AcceleratorsTest, TilesAreDevicesUnlessTheHierarchyIsComposite) {
  WriteXpu(128, "0000:29:00.0", "i915", 0);
  for (const char* gt : {"gt0", "gt1"})
    Write(std::string("/sys/bus/pci/devices/0000:29:00.0/drm/card1/gt/") + gt + "/id");
  WriteXpu(129, "0000:3a:00.0", "xe", 0);
  for (const char* tile : {"tile0", "tile1"})
    Write(std::string("/sys/bus/pci/devices/0000:3a:00.0/") + tile + "/gt0/id");
  EXPECT_EQ(Workers("--nproc-per-node xpu"), 4);
  EXPECT_EQ(Workers("--nproc-per-node xpu", {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}}), 2);
  EXPECT_EQ(Workers("--nproc-per-node xpu",
                    {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}, {"ZE_AFFINITY_MASK", "0.1,1"}}),
            2);
}

TEST_F(AcceleratorsTest, NpusAreDavinciDevices) {
  for (int number = 0; number < 3; ++number) Write("/dev/davinci" + std::to_string(number));
  EXPECT_THAT(ReadNpus(root_), IsEmpty());  // no driver
  Write("/dev/davinci_manager");
  EXPECT_EQ(Workers("--nproc-per-node npu"), 3);
  EXPECT_EQ(Workers("--nproc-per-node auto"), 3);
  EXPECT_EQ(Workers("--nproc-per-node npu", {{"ASCEND_RT_VISIBLE_DEVICES", "0,2"}}), 2);
  EXPECT_EQ(ReadNpus(root_)[0].node, -1);
  for (const char* address : {"0000:c1:00.0", "0000:c2:00.0"}) {
    WriteNode(address, 1);
    Write(std::string("/sys/bus/pci/devices/") + address + "/vendor", "0x19e5\n");
    Write(std::string("/sys/bus/pci/devices/") + address + "/class", "0x120000\n");
  }
  EXPECT_EQ(ReadNpus(root_)[2].node, 1);
  WriteNode("0000:c2:00.0", 0);
  EXPECT_EQ(ReadNpus(root_)[0].node, -1);
}

TEST_F(AcceleratorsTest, ThatThereIsNoneIsOneSentence) {
  const std::pair<const char*, const char*> cases[] = {{"gpu", "no NVIDIA or AMD GPU is visible"},
                                                       {"xpu", "no Intel GPU is visible"},
                                                       {"npu", "no Ascend NPU is visible"}};
  for (const auto& [kind, words] : cases) {
    const std::string flags = std::string("--nproc-per-node ") + kind;
    const auto places = PlaceWorkers(ParsedLine(flags), Find(flags));
    ASSERT_TRUE(absl::IsNotFound(places.status()));
    EXPECT_THAT(std::string(places.status().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace ddprun
