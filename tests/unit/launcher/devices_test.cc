// SPDX-License-Identifier: Apache-2.0
#include "launcher/devices.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(DevicesTest, CudaVisibleDevicesLimitsWhatIsThere) {
  EXPECT_EQ(CountVisibleGpus(8, std::nullopt), 8);
  EXPECT_EQ(CountVisibleGpus(8, "0,3"), 2);
  EXPECT_EQ(CountVisibleGpus(8, "GPU-1a, GPU-2b"), 2);
  EXPECT_EQ(CountVisibleGpus(8, "0,-1,1"), 1);
  EXPECT_EQ(CountVisibleGpus(8, ""), 0);
  EXPECT_EQ(CountVisibleGpus(8, "-1"), 0);
  EXPECT_EQ(CountVisibleGpus(0, "0,1"), 0);
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
  EXPECT_GE(CountCpus(), 1);
}

}  // namespace
}  // namespace ddprun
