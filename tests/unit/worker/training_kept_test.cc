// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "worker/train/training/kept_training.h"

namespace ddprun {
namespace {

constexpr at::DeviceType kGpu = at::kCUDA;

TEST(KeptTrainingTest, CopiesAreKeptOnlyWhereStepsMayHaveToBeUndone) {
  EXPECT_EQ(StepsAtEndOfWorld(kGpu, 2, /*kept=*/true, /*another_world=*/true),
            QueuedSteps::kUndone);
  EXPECT_EQ(StepsAtEndOfWorld(kGpu, 1, true, true), QueuedSteps::kComplete);
  EXPECT_EQ(StepsAtEndOfWorld(kGpu, 2, false, true), QueuedSteps::kComplete);
  EXPECT_EQ(StepsAtEndOfWorld(at::kCPU, 2, true, true), QueuedSteps::kComplete);
}

TEST(KeptTrainingTest, AStateThatNobodyGoesOnFromIsNotCopied) {
  EXPECT_EQ(StepsAtEndOfWorld(kGpu, 2, /*kept=*/true, /*another_world=*/false), QueuedSteps::kLost);
  EXPECT_EQ(StepsAtEndOfWorld(kGpu, 1, true, false), QueuedSteps::kComplete);
  EXPECT_EQ(StepsAtEndOfWorld(at::kCPU, 2, true, false), QueuedSteps::kComplete);
}

}  // namespace
}  // namespace ddprun
