// SPDX-License-Identifier: Apache-2.0
// The kernels of a max-pool in the passes of batch norm and GELU, run on the CPU, give ATen's
// max_pool2d, batch_norm and gelu, forward and backward, at even and odd sizes and with equal
// values in a window: pooled values and where they are from exactly, all others within two units in
// the last place of the largest value, eight of floats.
#include "worker/train/layers/max_pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <ostream>

#include "tests/testing/emulated_kernels.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/layers/batch_norm.h"

namespace ddprun {
namespace {

struct PoolCase {
  const char* name;
  at::ScalarType type;
  std::int64_t images;
  std::int64_t channels;
  std::int64_t height;
  std::int64_t width;
  bool few_values = false;  // so that windows have equal ones
};

void PrintTo(const PoolCase& c, std::ostream* out) { *out << c.name; }

at::Tensor ImagesOf(const PoolCase& c) {
  torch::manual_seed(11);
  at::Tensor x = at::randn({c.images, c.channels, c.height, c.width}) * 1.5 + 0.75;
  if (c.few_values) x = x.round();
  return x.to(c.type).contiguous(at::MemoryFormat::ChannelsLast);
}

struct PoolResult {
  at::Tensor out;
  at::Tensor x_gradient;
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  at::Tensor running_mean;
  at::Tensor running_variance;
  std::int64_t batches = 0;
};

// Two forwards and a backward.
PoolResult PoolNormGelu(const PoolCase& c) {
  torch::manual_seed(12);
  BatchNorm norm(torch::nn::BatchNorm2dOptions(c.channels).eps(1e-12).momentum(0.4));
  {
    const torch::NoGradGuard no_grad;
    norm->weight.uniform_(0.5, 1.5);
    norm->bias.uniform_(-0.5, 0.5);
  }
  const at::Tensor x = ImagesOf(c).requires_grad_();
  norm->PoolGelu(x);
  PoolResult result{.out = norm->PoolGelu(x)};
  torch::manual_seed(13);
  result.out.backward(at::randn(result.out.sizes()).to(c.type));
  result.x_gradient = x.grad();
  result.weight_gradient = norm->weight.grad();
  result.bias_gradient = norm->bias.grad();
  result.running_mean = norm->running_mean;
  result.running_variance = norm->running_var;
  result.batches = norm->num_batches_tracked.item<std::int64_t>();
  return result;
}

// In units in the last place of `largest`, a value of this type.
double Ulps(const at::Tensor& a, const at::Tensor& b, double largest, at::ScalarType type) {
  const double ulp = type == at::kFloat  ? std::numeric_limits<float>::epsilon()
                     : type == at::kHalf ? 0x1p-10
                                         : 0x1p-7;
  const at::Tensor difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  return difference.max().item<double>() / (largest * ulp);
}

class MaxPoolKernels : public testing::TestWithParam<PoolCase> {};

TEST_P(MaxPoolKernels, AreAtensWithNormAndGelu) {
  const PoolCase& c = GetParam();
  const PoolResult expected = PoolNormGelu(c);
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  const PoolResult result = PoolNormGelu(c);
  const auto launches = kernels->TakeLaunches();
  EXPECT_EQ(launches.size(), 6u);  // of so many kinds: nothing was ATen's
  EXPECT_TRUE(launches.contains(KernelName("pool_moments", c.type)));
  EXPECT_TRUE(launches.contains(KernelName("pool_input_gradient", c.type)));

  const double most = c.type == at::kFloat ? 8 : 2;
  const auto ulps = [&](const at::Tensor& a, const at::Tensor& b) {
    return Ulps(a, b, b.abs().max().item<double>(), c.type);
  };
  ASSERT_EQ(result.out.sizes(), expected.out.sizes());
  EXPECT_EQ(result.out.scalar_type(), c.type);
  EXPECT_TRUE(result.out.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(ulps(result.out, expected.out), most);
  EXPECT_LE(ulps(result.x_gradient, expected.x_gradient), most);
  EXPECT_LE(ulps(result.weight_gradient, expected.weight_gradient), most);
  EXPECT_LE(ulps(result.bias_gradient, expected.bias_gradient), most);
  EXPECT_TRUE(at::allclose(result.running_mean, expected.running_mean, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(result.running_variance, expected.running_variance, 1e-5, 1e-6));
  EXPECT_EQ(result.batches, 2);
}

// Which of its window's four each pooled value is, from ATen's index into the image.
at::Tensor PlacesOf(const at::Tensor& indices, std::int64_t width) {
  const at::Tensor row = indices.div(width, "floor");
  return ((row % 2) * 2 + indices % width % 2).to(at::kByte);
}

TEST_P(MaxPoolKernels, TakeTheFirstOfTheLargest) {
  const PoolCase& c = GetParam();
  at::Tensor x = ImagesOf(c);
  // Not a number goes before all others; the last of several.
  x.index_put_({0, 0, 1, 0}, std::numeric_limits<float>::quiet_NaN());
  const auto [values, indices] = at::max_pool2d_with_indices(x, 2);
  const auto kernels = EmulatedKernels();
  ASSERT_TRUE(CanPoolByKernels(x));
  const Pooled pooled = EmptyPooled(x);
  const LaunchShape shape = PoolLaunch(*kernels, pooled, 2);
  const at::Tensor partial =
      at::empty({static_cast<std::int64_t>(shape.blocks) * (2 * c.channels + 1)});
  LaunchPoolMoments(*kernels, shape, x, pooled, partial);
  EXPECT_TRUE(at::allclose(pooled.values, values, 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(pooled.places.equal(PlacesOf(indices, c.width)));
}

INSTANTIATE_TEST_SUITE_P(All, MaxPoolKernels,
                         testing::Values(PoolCase{"Float", at::kFloat, 3, 4, 6, 8},
                                         PoolCase{"FloatOfManyBlocks", at::kFloat, 9, 12, 17, 19},
                                         PoolCase{"BFloat16", at::kBFloat16, 4, 24, 9, 7},
                                         PoolCase{"Half", at::kHalf, 3, 64, 7, 11},
                                         PoolCase{"FewRows", at::kBFloat16, 3, 256, 3, 5},
                                         PoolCase{"EqualValues", at::kBFloat16, 4, 16, 8, 9, true}),
                         [](const auto& each) { return each.param.name; });

// What the kernels do not take is ATen's, with its errors.
TEST(MaxPool, OtherImagesAreAtens) {
  constexpr auto kByPixels = at::MemoryFormat::ChannelsLast;
  EXPECT_TRUE(CanPoolByKernels(at::ones({2, 8, 4, 4}).contiguous(kByPixels)));
  EXPECT_FALSE(CanPoolByKernels(at::ones({2, 8, 4, 4})));
  EXPECT_FALSE(CanPoolByKernels(at::ones({2, 3, 4, 4}).contiguous(kByPixels)));
  EXPECT_FALSE(CanPoolByKernels(at::ones({2, 8, 1, 4}).contiguous(kByPixels)));
  EXPECT_FALSE(CanPoolByKernels(at::ones({2, 8, 4, 4}, at::kDouble).contiguous(kByPixels)));
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  BatchNorm norm(torch::nn::BatchNorm2dOptions(8));
  norm->eval();
  norm->PoolGelu(at::ones({2, 8, 4, 4}).contiguous(kByPixels));
  EXPECT_TRUE(kernels->TakeLaunches().empty());
  norm->train();
  EXPECT_THROW(norm->PoolGelu(at::ones({1, 8, 2, 2}).contiguous(kByPixels)), c10::Error);
}

// By the running statistics.
TEST(MaxPool, AnEvaluationIsAtens) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(14);
  BatchNorm norm(torch::nn::BatchNorm2dOptions(8));
  norm->running_mean.uniform_(-1, 1);
  norm->running_var.uniform_(0.5, 2);
  norm->eval();
  const at::Tensor x = at::randn({2, 8, 5, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor expected = norm->PoolGelu(x);
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  EXPECT_TRUE(at::allclose(norm->PoolGelu(x), expected, 1e-5, 1e-6));
  EXPECT_FALSE(kernels->TakeLaunches().contains("pool_moments_float"));
}

}  // namespace
}  // namespace ddprun
