// SPDX-License-Identifier: Apache-2.0
#include "worker/training/training_snapshot.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

nlohmann::json AboutWith(const char* amp, double scale) {
  return {{"config", {{"amp", amp}}}, {"scaler", {{"scale", scale}, {"steps_since_growth", 7}}}};
}

TEST(SavedScale, IsThatOfATrainingInFp16) {
  const auto saved = SavedScale(AboutWith("fp16", 1024));
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->scale, 1024);
  EXPECT_EQ(saved->steps_since_growth, 7);
}

// Resumed with --amp fp16 such a training begins with the scaler's own first scale.
TEST(SavedScale, IsNoneOfATrainingThatDidNotScale) {
  for (const char* amp : {"off", "auto", "bf16"}) EXPECT_FALSE(SavedScale(AboutWith(amp, 1)));
}

}  // namespace
}  // namespace ddprun
