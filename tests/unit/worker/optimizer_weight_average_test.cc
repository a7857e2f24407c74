// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/weight_average.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

TEST(WeightAverage, FollowsTheWeights) {
  at::Tensor weight = at::zeros({3}).requires_grad_();
  WeightAverage average({{"w", weight}}, 0.75);
  const torch::NoGradGuard no_grad;
  weight.fill_(1);
  average.Update();
  EXPECT_TRUE(average.State()[0].second.equal(at::full({3}, 0.25)));
  average.Update();
  EXPECT_TRUE(average.State()[0].second.equal(at::full({3}, 0.4375)));
  EXPECT_EQ(average.State()[0].first, "w");
}

TEST(WeightAverage, CanLeaveAStepOutOnTheDevice) {
  const at::Tensor weight = at::zeros({3}).requires_grad_();
  WeightAverage average({{"w", weight}}, 0.75);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(1);
  }
  average.Update(at::ones({}));
  EXPECT_TRUE(average.State()[0].second.equal(at::zeros({3})));
  average.Update(at::zeros({}));
  EXPECT_TRUE(average.State()[0].second.equal(at::full({3}, 0.25)));
}

TEST(WeightAverage, SwapsInPlaceAndBack) {
  at::Tensor weight = at::zeros({2}).requires_grad_();
  WeightAverage average({{"w", weight}}, 0.5);
  const void* const memory = weight.data_ptr();
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(4);
  }
  average.Update();
  average.Swap();
  EXPECT_TRUE(weight.detach().equal(at::full({2}, 2.0)));
  EXPECT_EQ(weight.data_ptr(), memory);
  average.Swap();
  EXPECT_TRUE(weight.detach().equal(at::full({2}, 4.0)));
  EXPECT_TRUE(average.State()[0].second.equal(at::full({2}, 2.0)));
}

}  // namespace
}  // namespace ddprun
