// SPDX-License-Identifier: Apache-2.0
// Weights' gradients by a matrix product, beside LibTorch's convolution.
#include "worker/layers/conv.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "worker/models/models.h"

namespace ddprun {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

struct Case {
  std::int64_t in, out, kernel, stride, images, side;
  bool by_product;
};

class ConvTest : public testing::TestWithParam<Case> {};

// Which way was taken shows in autograd's name for it.
bool ByProduct(const at::Tensor& out) {
  return out.grad_fn()->name().find("ByProduct") != std::string::npos;
}

TEST_P(ConvTest, HasConv2dsNumbers) {
  const Case& which = GetParam();
  torch::manual_seed(3);
  const auto options = torch::nn::Conv2dOptions(which.in, which.out, which.kernel)
                           .stride(which.stride)
                           .padding(which.kernel / 2)
                           .bias(false);
  Conv ours(which.in, which.out, which.kernel, which.stride);
  torch::nn::Conv2d theirs(options);
  UseChannelsLast(*ours);
  theirs->weight.set_data(ours->weight.detach().clone());
  const at::Tensor images =
      at::randn({which.images, which.in, which.side, which.side}).contiguous(kChannelsLast);
  const at::Tensor x = images.clone().requires_grad_();
  const at::Tensor y = images.clone().requires_grad_();
  const at::Tensor out = ours->forward(x);
  const at::Tensor expected = theirs->forward(y);
  EXPECT_EQ(ByProduct(out), which.by_product);
  const at::Tensor gradient = at::randn_like(expected);
  out.backward(gradient);
  expected.backward(gradient);
  EXPECT_TRUE(at::equal(out, expected));
  EXPECT_TRUE(at::equal(x.grad(), y.grad()));
  const at::Tensor& weight_gradient = ours->weight.grad();
  const double scale = theirs->weight.grad().abs().max().item<double>();
  EXPECT_LT((weight_gradient - theirs->weight.grad()).abs().max().item<double>(), 3e-6 * scale);
  // The reducer's buckets have the weights' strides.
  EXPECT_EQ(weight_gradient.strides(), ours->weight.strides());
}

INSTANTIATE_TEST_SUITE_P(All, ConvTest,
                         testing::Values(Case{512, 512, 3, 1, 4, 4, true},
                                         Case{256, 512, 3, 2, 4, 8, true},
                                         Case{384, 400, 3, 2, 3, 7, true},
                                         Case{512, 512, 3, 1, 40, 4, false},  // many pixels
                                         Case{64, 64, 3, 1, 4, 4, false},     // few channels
                                         Case{512, 512, 1, 1, 4, 4, false}));

TEST(ConvTest, OtherImagesAndModesGoTheUsualWay) {
  Conv conv(512, 512, 3, 1);
  const at::Tensor planes = at::randn({1, 512, 4, 4}).requires_grad_();
  EXPECT_FALSE(ByProduct(conv->forward(planes)));
  UseChannelsLast(*conv);
  const at::Tensor x = at::randn({1, 512, 4, 4}).contiguous(kChannelsLast).requires_grad_();
  EXPECT_TRUE(ByProduct(conv->forward(x)));
  conv->eval();
  EXPECT_FALSE(ByProduct(conv->forward(x)));
}

TEST(ConvTest, BeginsAsTorchvisionsDo) {
  torch::manual_seed(1);
  const Conv conv(64, 128, 3, 2);
  torch::manual_seed(1);
  const at::Tensor drawn = at::empty({128, 64, 3, 3});
  torch::nn::init::kaiming_normal_(drawn, 0.0, torch::kFanOut, torch::kReLU);
  EXPECT_TRUE(at::equal(conv->weight, drawn));
  EXPECT_EQ(conv->named_parameters().keys(), std::vector<std::string>{"weight"});
  EXPECT_TRUE(conv->weight.requires_grad());
}

}  // namespace
}  // namespace ddprun
