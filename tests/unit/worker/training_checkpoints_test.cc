// SPDX-License-Identifier: Apache-2.0
#include "worker/training/training_snapshot.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "worker/files/tensor_list.h"

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

TEST(HasRandomState, IsOfTheSameRankAndKindOfDevice) {
  const at::Tensor of_cpu = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const at::Tensor of_cuda = at::zeros({16}, at::kByte);
  const nlohmann::json on_cpu = TensorList({{"model/w", at::ones({2})}, {"random/1", of_cpu}});
  const nlohmann::json on_cuda = TensorList({{"random/0", of_cuda}, {"random/1", of_cuda}});
  EXPECT_TRUE(HasRandomState(on_cpu, 1, of_cpu));
  EXPECT_FALSE(HasRandomState(on_cpu, 1, of_cuda));
  EXPECT_FALSE(HasRandomState(on_cpu, 0, of_cpu));
  EXPECT_TRUE(HasRandomState(on_cuda, 0, of_cuda));
  EXPECT_FALSE(HasRandomState(on_cuda, 0, of_cpu));
}

}  // namespace
}  // namespace ddprun
