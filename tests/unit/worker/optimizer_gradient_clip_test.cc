// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/gradient_clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

double NormOf(const std::vector<at::Tensor>& gradients) {
  return SquaredNorm(gradients, at::kCPU).sqrt().item<double>();
}

TEST(GradientClip, IsLibTorchs) {
  torch::manual_seed(1);
  std::vector<at::Tensor> ours, parameters;
  for (const std::int64_t size : {3, 50, 1}) {
    at::Tensor parameter = at::zeros({size}).requires_grad_();
    parameter.mutable_grad() = at::randn({size});
    ours.push_back(parameter.grad().clone());
    parameters.push_back(parameter);
  }
  const double norm = NormOf(ours);
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(parameters, 0.5), norm, 1e-5);
  ClipToNorm(ours, at::tensor(norm, at::kDouble), 0.5);
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::allclose(ours[i], parameters[i].grad(), 1e-5, 1e-7));
  EXPECT_NEAR(NormOf(ours), 0.5, 1e-5);
}

// Where a model is cut into stages depends on measured times, and must not show in the training.
TEST(GradientClip, TheNormDoesNotDependOnHowTheGradientsAreDivided) {
  torch::manual_seed(1);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 40; ++i) all.push_back(at::randn({100 + i}));
  const auto whole = static_cast<float>(NormOf(all));
  for (std::ptrdiff_t cut = 1; cut < 40; ++cut) {
    const at::Tensor sum = SquaredNorm({all.begin(), all.begin() + cut}, at::kCPU) +
                           SquaredNorm({all.begin() + cut, all.end()}, at::kCPU);
    EXPECT_EQ(sum.sqrt().item<float>(), whole) << cut;
  }
}

TEST(GradientClip, ShortOnesAreLeft) {
  const std::vector<at::Tensor> gradients{at::ones({4})};
  ClipToNorm(gradients, at::tensor(2.0, at::kDouble), 3);
  EXPECT_TRUE(gradients[0].equal(at::ones({4})));
  EXPECT_EQ(SquaredNorm({}, at::kCPU).item<double>(), 0);
}

}  // namespace
}  // namespace ddprun
