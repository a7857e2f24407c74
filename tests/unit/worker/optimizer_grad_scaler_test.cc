// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace ddprun {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double ScaleOf(const GradScaler& scaler) { return scaler.state().scale; }

// A step with gradients that have overflowed, or have not.
void Step(GradScaler& scaler, bool finite) {
  scaler.Unscale({at::ones({2}), at::full({3}, finite ? 65536.0f : kInfinity)});
  scaler.Update();
}

TEST(GradScaler, DividesByTheScale) {
  GradScaler scaler(true, at::kCPU);
  std::vector<at::Tensor> gradients{at::full({3}, 65536.0), at::full({2}, -131072.0)};
  EXPECT_EQ(scaler.Unscale(gradients).item<float>(), 0);
  EXPECT_TRUE(gradients[0].equal(at::ones({3})));
  EXPECT_TRUE(gradients[1].equal(at::full({2}, -2.0)));
  EXPECT_EQ(scaler.Unscale({}).item<float>(), 0);
}

TEST(GradScaler, SeesEveryKindOfOverflow) {
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<at::Tensor> gradients{at::ones({3}), at::ones({5})};
    gradients[1][4] = value;
    EXPECT_EQ(GradScaler(true, at::kCPU).Unscale(gradients).item<float>(), 1);
  }
}

TEST(GradScaler, HalvesAfterAnOverflowAndDoublesAfterManyGoodSteps) {
  GradScaler scaler(true, at::kCPU);
  Step(scaler, /*finite=*/false);
  EXPECT_EQ(ScaleOf(scaler), GradScaler::kInitialScale / 2);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) Step(scaler, true);
  EXPECT_EQ(ScaleOf(scaler), GradScaler::kInitialScale / 2);
  Step(scaler, true);
  EXPECT_EQ(ScaleOf(scaler), GradScaler::kInitialScale);
}

TEST(GradScaler, AnOverflowBeginsTheCountAnew) {
  GradScaler scaler(true, at::kCPU);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) Step(scaler, true);
  Step(scaler, false);
  Step(scaler, true);
  EXPECT_EQ(ScaleOf(scaler), GradScaler::kInitialScale / 2);
  EXPECT_EQ(scaler.state().steps_since_growth, 1);
}

TEST(GradScaler, GoesOnWhereItsStateWas) {
  GradScaler first(true, at::kCPU);
  for (int i = 0; i < GradScaler::kGrowthInterval - 1; ++i) Step(first, true);
  GradScaler second(true, at::kCPU);
  second.Restore(first.state());
  Step(second, true);
  EXPECT_EQ(ScaleOf(second), GradScaler::kInitialScale * 2);
}

// A graph has been captured that reads and writes them.
TEST(GradScaler, ItsTensorsStayWhereTheyAre) {
  GradScaler scaler(true, at::kCPU);
  const void* const scale = scaler.scale().data_ptr();
  const void* const overflow = scaler.Unscale({at::ones({2})}).data_ptr();
  scaler.Restore({.scale = 16, .steps_since_growth = 6});
  EXPECT_EQ(scaler.scale().item<float>(), 16);
  Step(scaler, false);
  EXPECT_EQ(scaler.scale().data_ptr(), scale);
  EXPECT_EQ(scaler.Unscale({at::ones({2})}).data_ptr(), overflow);
}

TEST(GradScaler, DisabledLeavesAllAsItIs) {
  GradScaler scaler(false, at::kCPU);
  const at::Tensor gradient = at::full({3}, kInfinity);
  EXPECT_FALSE(scaler.Unscale({gradient}).defined());
  EXPECT_FALSE(scaler.scale().defined());
  EXPECT_TRUE(gradient.equal(at::full({3}, kInfinity)));
  scaler.Update();
  EXPECT_EQ(ScaleOf(scaler), 1);
}

TEST(GradScaler, AFixedScaleDividesAndSkipsNothing) {
  GradScaler scaler = GradScaler::Fixed(48, at::kCPU);
  EXPECT_EQ(scaler.scale().item<float>(), 48);
  std::vector<at::Tensor> gradients{at::full({3}, 96.0), at::full({2}, kInfinity)};
  EXPECT_FALSE(scaler.Unscale(gradients).defined());
  EXPECT_TRUE(gradients[0].allclose(at::full({3}, 2.0)));
  scaler.Update();
  EXPECT_EQ(scaler.scale().item<float>(), 48);
  // A loss that is not finite ends the training, as without a scale.
  EXPECT_FALSE(scaler.enabled());
  EXPECT_EQ(ScaleOf(scaler), 1);
}

}  // namespace
}  // namespace ddprun
