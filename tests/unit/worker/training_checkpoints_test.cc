// SPDX-License-Identifier: Apache-2.0
#include "worker/training/training_snapshot.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "worker/step/step_seed.h"

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

// A scale below 1 has ended the training: the next would end at once.
TEST(SavedScale, IsNoneOfATrainingThatOverflowedUntilItsEnd) {
  EXPECT_FALSE(SavedScale(AboutWith("fp16", 0.5)));
  EXPECT_EQ(SavedScale(AboutWith("fp16", 1))->scale, 1);
}

TEST(SeedStep, IsOfSeedStepAndRankAlone) {
  const auto drawn = [](std::uint64_t seed, std::int64_t step, int rank) {
    SeedStep(at::kCPU, seed, step, rank);
    return at::rand({8});
  };
  const at::Tensor first = drawn(1, 2, 3);
  EXPECT_FALSE(at::equal(first, at::rand({8})));
  EXPECT_TRUE(at::equal(first, drawn(1, 2, 3)));
  EXPECT_FALSE(at::equal(first, drawn(2, 2, 3)));
  EXPECT_FALSE(at::equal(first, drawn(1, 3, 3)));
  EXPECT_FALSE(at::equal(first, drawn(1, 2, 2)));
}

}  // namespace
}  // namespace ddprun
