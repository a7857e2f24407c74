// SPDX-License-Identifier: Apache-2.0
// Two ranks' synchronised batch norm against one process' BatchNorm2d on both batches together.
#include "worker/train/layers/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "tests/testing/threads_sum.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

constexpr std::int64_t kChannels = 5;
constexpr int kRanks = ThreadsSum::kRanks;

struct Outcome {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient, mean, variance;
};

template <typename Module>
Outcome TrainOnce(Module& module, const at::Tensor& input, const at::Tensor& factors) {
  const at::Tensor x = input.clone().requires_grad_();
  const at::Tensor output = module->forward(x);
  (output.to(at::kFloat) * factors).sum().backward();
  return {output.detach(),
          x.grad(),
          module->weight.grad(),
          module->bias.grad(),
          module->running_mean.clone(),
          module->running_var.clone()};
}

template <typename Module>
void SetWeights(Module& module) {
  const torch::NoGradGuard no_grad;
  module->weight.copy_(at::linspace(0.5, 2, kChannels));
  module->bias.copy_(at::linspace(-1, 1, kChannels));
}

// The outcome of all ranks together: outputs side by side, gradients added up as DDP does.
Outcome OnRanks(const std::array<at::Tensor, kRanks>& inputs,
                const std::vector<at::Tensor>& factors) {
  ThreadsSum sum;
  std::array<Outcome, kRanks> outcomes;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      BatchNorm module(kChannels);
      SetWeights(module);
      EXPECT_EQ(SynchronizeBatchNorm(*module, [&](at::Tensor& values) { sum.Add(rank, values); }),
                1);
      outcomes[i] = TrainOnce(module, inputs[i], factors[i]);
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_TRUE(at::equal(outcomes[0].mean, outcomes[1].mean));
  EXPECT_TRUE(at::equal(outcomes[0].variance, outcomes[1].variance));
  const auto& [a, b] = outcomes;
  return {at::cat({a.output, b.output}),
          at::cat({a.input_gradient, b.input_gradient}),
          a.weight_gradient + b.weight_gradient,
          a.bias_gradient + b.bias_gradient,
          a.mean,
          a.variance};
}

void ExpectAsOneProcess(const std::array<at::Tensor, kRanks>& inputs, double tolerance) {
  const at::Tensor joint = at::cat({inputs[0], inputs[1]});
  const at::Tensor factors = at::randn(joint.sizes());
  torch::nn::BatchNorm2d module(kChannels);
  SetWeights(module);
  const Outcome expected = TrainOnce(module, joint, factors);
  const Outcome actual =
      OnRanks(inputs, factors.split_with_sizes({inputs[0].size(0), inputs[1].size(0)}));
  const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a.to(at::kFloat), b.to(at::kFloat), tolerance, tolerance);
  };
  EXPECT_TRUE(close(actual.output, expected.output));
  EXPECT_TRUE(close(actual.input_gradient, expected.input_gradient));
  EXPECT_TRUE(close(actual.weight_gradient, expected.weight_gradient));
  EXPECT_TRUE(close(actual.bias_gradient, expected.bias_gradient));
  EXPECT_TRUE(close(actual.mean, expected.mean));
  EXPECT_TRUE(close(actual.variance, expected.variance));
  EXPECT_EQ(actual.output.scalar_type(), joint.scalar_type());
}

TEST(SynchronizedBatchNorm, IsOneProcessOnAllRanksBatches) {
  torch::manual_seed(1);
  ExpectAsOneProcess({at::randn({4, kChannels, 3, 3}), at::randn({4, kChannels, 3, 3}) * 3 + 2},
                     1e-5);
}

TEST(SynchronizedBatchNorm, BatchesMayDifferInSize) {
  torch::manual_seed(2);
  ExpectAsOneProcess({at::randn({7, kChannels, 4, 4}), at::randn({1, kChannels, 4, 4}) - 5}, 1e-5);
}

TEST(SynchronizedBatchNorm, ImagesMayBeChannelsLast) {
  torch::manual_seed(3);
  const auto format = at::MemoryFormat::ChannelsLast;
  ExpectAsOneProcess({at::randn({4, kChannels, 5, 5}).contiguous(format),
                      at::randn({4, kChannels, 5, 5}).contiguous(format)},
                     1e-5);
}

TEST(SynchronizedBatchNorm, AMeanFarFromZeroCostsNoDigits) {
  torch::manual_seed(4);
  ExpectAsOneProcess({at::randn({8, kChannels, 4, 4}) + 300, at::randn({8, kChannels, 4, 4}) + 300},
                     2e-4);
}

TEST(SynchronizedBatchNorm, OneImageOnEachRankIsEnough) {
  torch::manual_seed(5);
  ExpectAsOneProcess({at::randn({1, kChannels, 1, 1}), at::randn({1, kChannels, 1, 1})}, 1e-4);
}

TEST(SynchronizedBatchNorm, HasBatchNormsNamesAndUsesRunningStatisticsInEvaluation) {
  BatchNorm module(kChannels);
  torch::nn::BatchNorm2d standard(kChannels);
  SynchronizeBatchNorm(*module, [](at::Tensor&) { FAIL() << "evaluation needs no other rank"; });
  EXPECT_EQ(module->named_parameters().keys(), standard->named_parameters().keys());
  EXPECT_EQ(module->named_buffers().keys(), standard->named_buffers().keys());
  module->eval();
  standard->eval();
  const at::Tensor x = at::randn({2, kChannels, 3, 3});
  EXPECT_TRUE(at::equal(module->forward(x), standard->forward(x)));
}

TEST(SynchronizedBatchNorm, FindsAllOfAModelAndASharedOneOnce) {
  const auto count = [](const std::string& name, const ModelOptions& options) {
    return SynchronizeBatchNorm(*MakeModel(name, options), [](at::Tensor&) {});
  };
  EXPECT_EQ(count("resnet18", {}), 20);
  EXPECT_EQ(count("netresdeep", {.shared_blocks = true}), 1);
  EXPECT_EQ(count("netresdeep", {.shared_blocks = false}), 10);
  EXPECT_EQ(count("linear", {}), 0);
}

}  // namespace
}  // namespace ddprun
