// SPDX-License-Identifier: Apache-2.0
// Max-pooling that keeps no indices, beside LibTorch's.
#include "worker/layers/pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

namespace ddprun {
namespace {

bool IsOurs(const at::Tensor& out) {
  return out.grad_fn()->name().find("Pooled") != std::string::npos;
}

void ExpectMaxPool2d(const at::Tensor& images, bool relu, bool ours) {
  const at::Tensor x = images.clone().requires_grad_();
  const at::Tensor y = images.clone().requires_grad_();
  const at::Tensor out = MaxPool2x2(x, relu);
  at::Tensor expected = at::max_pool2d(y, 2);
  if (relu) expected = expected.relu();
  EXPECT_EQ(IsOurs(out), ours);
  EXPECT_TRUE(at::allclose(out, expected, 0, 0, /*equal_nan=*/true));
  const at::Tensor gradient = at::randn(expected.sizes());  // in planes: its order must not matter
  out.backward(gradient);
  expected.backward(gradient);
  EXPECT_TRUE(at::equal(x.grad(), y.grad()));
}

class PoolTest : public testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(PoolTest, HasLibTorchsBits) {
  const auto [relu, threads] = GetParam();
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  torch::manual_seed(5);
  for (const auto& [channels, height, width] :
       {std::tuple{16, 2, 2}, std::tuple{32, 8, 6}, std::tuple{6, 4, 4}, std::tuple{64, 4, 10}}) {
    const at::Tensor images =
        at::randn({3, channels, height, width}).contiguous(at::MemoryFormat::ChannelsLast);
    ExpectMaxPool2d(images, relu, true);
    ExpectMaxPool2d(images.round(), relu, true);  // many are equal
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(All, PoolTest, testing::Combine(testing::Bool(), testing::Values(1, 2)));

TEST(PoolTest, NotANumberAndInfinityAreTreatedAsLibTorchDoes) {
  at::Tensor images = at::randn({1, 16, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  images[0][1][0][0] = std::nan("");
  images[0][2][1][1] = std::nan("");
  images[0][3].fill_(-std::numeric_limits<float>::infinity());
  images[0][4][3][2] = std::numeric_limits<float>::infinity();
  ExpectMaxPool2d(images, false, true);
  ExpectMaxPool2d(images, true, true);
}

TEST(PoolTest, OtherImagesGoTheUsualWay) {
  ExpectMaxPool2d(at::randn({2, 16, 4, 4}), true, false);
  ExpectMaxPool2d(at::randn({2, 16, 5, 4}).contiguous(at::MemoryFormat::ChannelsLast), true, false);
  ExpectMaxPool2d(at::randn({2, 16, 4, 4}, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast),
                  false, false);
  const at::Tensor x = at::randn({2, 16, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(at::equal(MaxPool2x2(x, true), at::max_pool2d(x, 2).relu()));
}

}  // namespace
}  // namespace ddprun
