// SPDX-License-Identifier: Apache-2.0
// Batch norm with its tail in one pass, beside LibTorch's operations one after the other: the same
// bits.
#include "worker/library/base/torch_versions.h"
#include "worker/train/layers/fused_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <tuple>

#include "worker/train/layers/batch_norm.h"

namespace ddprun {
namespace {

// ATen's number of threads, put back at the end.
class Threads {
 public:
  explicit Threads(int threads) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

struct NormOutcome {
  at::Tensor out, x_gradient, shortcut_gradient, weight_gradient, bias_gradient, mean, variance;
};

template <typename Module>
NormOutcome Train(Module& module,
                  const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& run,
                  const at::Tensor& x, const at::Tensor& shortcut, const at::Tensor& gradient) {
  const at::Tensor input = x.clone().requires_grad_();
  const at::Tensor added = shortcut.clone().requires_grad_();
  const at::Tensor out = run(input, added);
  out.backward(gradient);
  return {out.detach(),        input.grad(),         added.grad(),       module->weight.grad(),
          module->bias.grad(), module->running_mean, module->running_var};
}

void SetNormWeights(torch::nn::BatchNorm2dImpl& module) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(11);
  module.weight.copy_(at::randn_like(module.weight));
  module.bias.copy_(at::randn_like(module.bias));
}

void ExpectSameBits(const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
  ASSERT_EQ(ours.defined(), theirs.defined()) << what;
  if (!ours.defined()) return;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The sums of sanitized loops are in another order.
  const bool same = at::allclose(ours, theirs, 1e-4, 1e-4);
#else
  const bool same = at::equal(ours, theirs);
#endif
  EXPECT_TRUE(same) << what << ": " << (ours - theirs).abs().max().item<double>() << " of "
                    << theirs.abs().max().item<double>();
}

void ExpectSameGradientOfX(const at::Tensor& ours, const at::Tensor& theirs) {
  const std::int64_t channels = theirs.size(1);
  const std::int64_t alike = DDPRUN_TORCH_IS_FROM(13) ? channels / 8 * 8 : channels;
  ExpectSameBits(ours.narrow(1, 0, alike), theirs.narrow(1, 0, alike), "gradient of x");
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-6, 1e-7)) << (ours - theirs).abs().max();
}

struct Shape {
  std::int64_t images, channels, side;
};

class FusedNormTest : public testing::TestWithParam<std::tuple<Shape, int>> {};

TEST_P(FusedNormTest, HasLibTorchsBits) {
  const auto [shape, threads] = GetParam();
  const Threads with(threads);
  torch::manual_seed(7);
  const auto images = [shape = shape] {
    return at::randn({shape.images, shape.channels, shape.side, shape.side})
        .contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images() * 2 + 0.5;
  const at::Tensor shortcut = images();
  const at::Tensor gradient = images();
  BatchNorm ours(shape.channels);
  torch::nn::BatchNorm2d theirs(shape.channels);
  SetNormWeights(*ours);
  SetNormWeights(*theirs);
  const NormState state{ours->weight, ours->bias, ours->running_mean, ours->running_var, 0.1, 1e-5};
  ASSERT_TRUE(CanFuseNorm(x, shortcut, state));

  const NormOutcome fused = Train(
      ours,
      [&](const at::Tensor& input, const at::Tensor& added) { return ours->ReluAdd(input, added); },
      x, shortcut, gradient);
  const NormOutcome expected = Train(
      theirs,
      [&](const at::Tensor& input, const at::Tensor& added) {
        return theirs->forward(input).relu().add(added);
      },
      x, shortcut, gradient);
  ExpectSameBits(fused.out, expected.out, "out");
  ExpectSameBits(fused.mean, expected.mean, "running mean");
  ExpectSameBits(fused.variance, expected.variance, "running variance");
  ExpectSameGradientOfX(fused.x_gradient, expected.x_gradient);
  ExpectSameBits(fused.shortcut_gradient, expected.shortcut_gradient, "gradient of the shortcut");
  ExpectSameBits(fused.weight_gradient, expected.weight_gradient, "gradient of the weight");
  ExpectSameBits(fused.bias_gradient, expected.bias_gradient, "gradient of the bias");
  EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, FusedNormTest,
                         testing::Combine(testing::Values(Shape{8, 32, 16}, Shape{3, 64, 7},
                                                          Shape{2, 16, 1}, Shape{5, 13, 3},
                                                          Shape{4, 512, 4}),
                                          testing::Values(1, 2, 3)));

TEST(FusedNormTest, OtherImagesGoTheLongWay) {
  BatchNorm module(16);
  const NormState state{module->weight,      module->bias, module->running_mean,
                        module->running_var, 0.1,          1e-5};
  const at::Tensor x = at::randn({2, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(CanFuseNorm(x, x, state));
  EXPECT_FALSE(CanFuseNorm(x.contiguous(), x, state));
  EXPECT_FALSE(CanFuseNorm(x.to(at::kBFloat16), x, state));
  EXPECT_FALSE(CanFuseNorm(x, x.contiguous(), state));
  EXPECT_FALSE(CanFuseNorm(x, x.narrow(0, 0, 1), state));  // would be broadcast
  torch::nn::BatchNorm2d plain(16);
  const at::Tensor planes = x.contiguous();
  EXPECT_TRUE(at::equal(module->ReluAdd(planes, planes), plain->forward(planes).relu() + planes));
}

TEST(FusedNormTest, EvaluationUsesRunningStatistics) {
  BatchNorm ours(16);
  torch::nn::BatchNorm2d theirs(16);
  SetNormWeights(*ours);
  SetNormWeights(*theirs);
  ours->eval();
  theirs->eval();
  const at::Tensor x = at::randn({2, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(at::equal(ours->ReluAdd(x, x), theirs->forward(x).relu() + x));
  EXPECT_TRUE(at::equal(ours->running_mean, at::zeros({16})));
}

TEST(FusedNormTest, NotANumberStaysOne) {
  BatchNorm module(16);
  at::Tensor x = at::randn({2, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0][3][1][1] = std::nan("");
  const at::Tensor out = module->ReluAdd(x, at::zeros_like(x));
  EXPECT_TRUE(out.select(1, 3).isnan().all().item<bool>());
  EXPECT_FALSE(out.select(1, 2).isnan().any().item<bool>());
}

}  // namespace
}  // namespace ddprun
