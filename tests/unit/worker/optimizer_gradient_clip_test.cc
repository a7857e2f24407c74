// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/gradient_clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace ddprun {
namespace {

TEST(GradientClip, IsLibTorchs) {
  torch::manual_seed(1);
  std::vector<at::Tensor> ours, parameters;
  for (const std::int64_t size : {3, 50, 1}) {
    at::Tensor parameter = at::zeros({size}).requires_grad_();
    parameter.mutable_grad() = at::randn({size});
    ours.push_back(parameter.grad().clone());
    parameters.push_back(parameter);
  }
  const double norm = std::sqrt(SquaredNorm(ours));
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(parameters, 0.5), norm, 1e-5);
  ClipToNorm(ours, norm, 0.5);
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::allclose(ours[i], parameters[i].grad(), 1e-5, 1e-7));
  EXPECT_NEAR(std::sqrt(SquaredNorm(ours)), 0.5, 1e-5);
}

// Where a model is cut into stages depends on measured times, and must not show in the training.
TEST(GradientClip, TheNormDoesNotDependOnHowTheGradientsAreDivided) {
  torch::manual_seed(1);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 40; ++i) all.push_back(at::randn({100 + i}));
  const auto whole = static_cast<float>(std::sqrt(SquaredNorm(all)));
  for (std::ptrdiff_t cut = 1; cut < 40; ++cut) {
    const double sum =
        SquaredNorm({all.begin(), all.begin() + cut}) + SquaredNorm({all.begin() + cut, all.end()});
    EXPECT_EQ(static_cast<float>(std::sqrt(sum)), whole) << cut;
  }
}

TEST(GradientClip, ShortOnesAreLeft) {
  const std::vector<at::Tensor> gradients{at::ones({4})};
  ClipToNorm(gradients, 2, 3);
  EXPECT_TRUE(gradients[0].equal(at::ones({4})));
  EXPECT_EQ(SquaredNorm({}), 0);
}

TEST(GradientClip, OnADeviceIsTheSame) {
  for (const double max_norm : {0.5, 3.0, 100.0}) {
    torch::manual_seed(1);
    const std::vector<at::Tensor> host{at::randn({50}), at::randn({3, 4})};
    const std::vector<at::Tensor> device{host[0].clone(), host[1].clone()};
    const double norm = std::sqrt(SquaredNorm(host));
    ClipToNorm(host, norm, max_norm);
    EXPECT_NEAR(ClipOnDevice(device, max_norm).item<double>(), norm, 1e-5);
    for (std::size_t i = 0; i < host.size(); ++i)
      EXPECT_TRUE(at::allclose(device[i], host[i], 1e-6, 1e-7)) << max_norm;
  }
}

}  // namespace
}  // namespace ddprun
