// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/gradient_weight.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

// Once for each backward, however often a parameter is used, and no longer than it lives.
TEST(GradientWeight, MultipliesEachGradientWhileItLives) {
  const at::Tensor used = at::ones({2}).requires_grad_(), frozen = at::ones({2});
  const auto backward = [&] {
    const at::Tensor once = used * 2;
    (once * used + frozen).sum().backward();  // 4 for each
  };
  backward();
  EXPECT_EQ(used.grad().sum().item<double>(), 8);
  {
    const GradientWeight half({used, frozen}, 0.5);
    backward();
    EXPECT_EQ(used.grad().sum().item<double>(), 12);
    backward();
    EXPECT_EQ(used.grad().sum().item<double>(), 16);
  }
  backward();
  EXPECT_EQ(used.grad().sum().item<double>(), 24);
}

}  // namespace
}  // namespace ddprun
