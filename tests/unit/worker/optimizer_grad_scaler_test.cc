// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace ddprun {
namespace {

TEST(GradScaler, DividesByTheScale) {
  const GradScaler scaler(true);
  std::vector<at::Tensor> gradients{at::full({3}, 65536.0), at::full({2}, -131072.0)};
  EXPECT_TRUE(scaler.Unscale(gradients));
  EXPECT_TRUE(gradients[0].equal(at::ones({3})));
  EXPECT_TRUE(gradients[1].equal(at::full({2}, -2.0)));
}

TEST(GradScaler, SeesEveryKindOfOverflow) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<at::Tensor> gradients{at::ones({3}), at::ones({5})};
    gradients[1][4] = value;
    EXPECT_FALSE(GradScaler(true).Unscale(gradients));
  }
}

TEST(GradScaler, HalvesAfterAnOverflowAndDoublesAfterManyGoodSteps) {
  GradScaler scaler(true);
  scaler.Update(/*finite=*/false);
  EXPECT_EQ(scaler.scale(), GradScaler::kInitialScale / 2);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) scaler.Update(true);
  EXPECT_EQ(scaler.scale(), GradScaler::kInitialScale / 2);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), GradScaler::kInitialScale);
}

TEST(GradScaler, AnOverflowBeginsTheCountAnew) {
  GradScaler scaler(true);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) scaler.Update(true);
  scaler.Update(false);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), GradScaler::kInitialScale / 2);
}

TEST(GradScaler, GoesOnWhereItsStateWas) {
  GradScaler first(true);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) first.Update(true);
  GradScaler second(true);
  second.Restore(first.state());
  second.Update(true);
  EXPECT_EQ(second.scale(), GradScaler::kInitialScale * 2);
}

TEST(GradScaler, DisabledLeavesAllAsItIs) {
  GradScaler scaler(false);
  std::vector<at::Tensor> gradients{at::full({3}, std::numeric_limits<float>::infinity())};
  EXPECT_TRUE(scaler.Unscale(gradients));
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 1);
}

// The device's rules beside the host's, over overflows and long good spells.
TEST(GradScaler, OnADeviceTakesTheSameDecisions) {
  GradScaler host(true);
  GradScaler device(true);
  device.KeepOn(at::kCPU);
  for (int step = 0; step < 2 * GradScaler::kGrowthInterval + 7; ++step) {
    const bool overflows = step == 3 || step == 4 || step == GradScaler::kGrowthInterval + 6;
    const float value = overflows ? std::numeric_limits<float>::infinity() : 65536.0f;
    const std::vector<at::Tensor> a{at::ones({2}), at::full({3}, value)};
    const std::vector<at::Tensor> b{at::ones({2}), at::full({3}, value)};
    const bool finite = host.Unscale(a);
    host.Update(finite);
    EXPECT_EQ(device.UnscaleOnDevice(b).item<float>(), finite ? 0 : 1) << "step " << step;
    device.UpdateOnDevice();
    EXPECT_TRUE(at::equal(a[0], b[0]));
    ASSERT_EQ(device.scale(), host.scale()) << "step " << step;
    ASSERT_EQ(device.state().steps_since_growth, host.state().steps_since_growth);
  }
}

TEST(GradScaler, OnADeviceGoesOnWhereItsStateWas) {
  GradScaler scaler(true);
  scaler.Restore({.scale = 32, .steps_since_growth = 5});
  scaler.KeepOn(at::kCPU);
  EXPECT_EQ(scaler.ScaleOnDevice().item<float>(), 32);
  scaler.Restore({.scale = 16, .steps_since_growth = 6});
  EXPECT_EQ(scaler.ScaleOnDevice().item<float>(), 16);
  EXPECT_EQ(scaler.state().steps_since_growth, 6);
}

TEST(GradScaler, DisabledHasNothingOnADevice) {
  GradScaler scaler(false);
  scaler.KeepOn(at::kCPU);
  EXPECT_FALSE(scaler.ScaleOnDevice().defined());
  EXPECT_FALSE(scaler.UnscaleOnDevice({at::ones({2})}).defined());
  scaler.UpdateOnDevice();
  EXPECT_EQ(scaler.scale(), 1);
}

}  // namespace
}  // namespace ddprun
