// SPDX-License-Identifier: Apache-2.0
#include "worker/training/grad_scaler.h"

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

}  // namespace
}  // namespace ddprun
