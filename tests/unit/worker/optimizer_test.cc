// SPDX-License-Identifier: Apache-2.0
// Beside LibTorch's own optimizers, which Python's are held to.
#include "worker/train/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <tuple>

namespace ddprun {
namespace {

constexpr int kSteps = 20;

// Sizes around the vectors' widths, and a convolution's weights pixel by pixel.
std::vector<at::Tensor> Parameters() {
  torch::manual_seed(3);
  std::vector<at::Tensor> parameters;
  for (const std::int64_t size : {1, 7, 16, 100, 4097}) parameters.push_back(at::randn({size}));
  parameters.push_back(at::randn({6, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  for (auto& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

NamedTensors Named(const std::vector<at::Tensor>& parameters) {
  NamedTensors named;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    named.emplace_back("p" + std::to_string(i), parameters[i]);
  return named;
}

// The same gradients for both; the third parameter has none in every other step.
void SetGradients(std::vector<at::Tensor>& ours, std::vector<at::Tensor>& theirs, int step) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool none = i == 2 && step % 2 == 1;
    const at::Tensor gradient = none ? at::Tensor() : at::randn_like(ours[i].detach());
    ours[i].mutable_grad() = gradient;
    theirs[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
  }
}

double LargestDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

double Rate(int step) { return 0.1 / (1 + step); }

class SgdTest : public testing::TestWithParam<std::tuple<double, double, bool>> {};

TEST_P(SgdTest, IsLibTorchsBitByBit) {
  const auto [momentum, weight_decay, nesterov] = GetParam();
  auto ours = Parameters();
  auto theirs = Parameters();
  const auto optimizer = MakeOptimizer(
      {.momentum = momentum, .weight_decay = weight_decay, .nesterov = nesterov}, Named(ours));
  torch::optim::SGD reference(
      theirs,
      torch::optim::SGDOptions(1).momentum(momentum).weight_decay(weight_decay).nesterov(nesterov));
  for (int step = 0; step < kSteps; ++step) {
    SetGradients(ours, theirs, step);
    optimizer->Step(Rate(step));
    reference.param_groups()[0].options().set_lr(Rate(step));
    reference.step();
  }
  EXPECT_EQ(LargestDifference(ours, theirs), 0);
}

INSTANTIATE_TEST_SUITE_P(All, SgdTest,
                         testing::Values(std::tuple{0.0, 0.0, false}, std::tuple{0.0, 5e-4, false},
                                         std::tuple{0.9, 0.0, false}, std::tuple{0.9, 5e-4, false},
                                         std::tuple{0.9, 5e-4, true}));

TEST(Sgd, ParametersThatAreNotFloatTakeTheSameSteps) {
  std::vector<at::Tensor> ours{at::arange(6, at::kDouble).requires_grad_()};
  std::vector<at::Tensor> theirs{at::arange(6, at::kDouble).requires_grad_()};
  const auto optimizer = MakeOptimizer({.momentum = 0.9, .nesterov = true}, Named(ours));
  torch::optim::SGD reference(
      theirs, torch::optim::SGDOptions(1).momentum(0.9).weight_decay(5e-4).nesterov(true));
  for (int step = 0; step < 5; ++step) {
    SetGradients(ours, theirs, step);
    optimizer->Step(Rate(step));
    reference.param_groups()[0].options().set_lr(Rate(step));
    reference.step();
  }
  EXPECT_LT(LargestDifference(ours, theirs), 1e-15);
}

TEST(AdamW, IsLibTorchs) {
  auto ours = Parameters();
  auto theirs = Parameters();
  const auto optimizer = MakeOptimizer({.optimizer = "adamw", .weight_decay = 0.01}, Named(ours));
  torch::optim::AdamW reference(theirs, torch::optim::AdamWOptions(1).weight_decay(0.01));
  for (int step = 0; step < kSteps; ++step) {
    SetGradients(ours, theirs, step);
    optimizer->Step(Rate(step));
    reference.param_groups()[0].options().set_lr(Rate(step));
    reference.step();
  }
  EXPECT_LT(LargestDifference(ours, theirs), 2e-6);
}

TEST(Adam, IsLibTorchs) {
  for (const double weight_decay : {0.0, 0.01}) {
    auto ours = Parameters();
    auto theirs = Parameters();
    const auto optimizer =
        MakeOptimizer({.optimizer = "adam", .weight_decay = weight_decay}, Named(ours));
    torch::optim::Adam reference(theirs, torch::optim::AdamOptions(1).weight_decay(weight_decay));
    for (int step = 0; step < kSteps; ++step) {
      SetGradients(ours, theirs, step);
      optimizer->Step(Rate(step));
      reference.param_groups()[0].options().set_lr(Rate(step));
      reference.step();
    }
    EXPECT_LT(LargestDifference(ours, theirs), 2e-6) << weight_decay;
  }
}

class SkipTest : public testing::TestWithParam<Config> {};

TEST_P(SkipTest, AStepThatIsSkippedChangesNothing) {
  auto skipping = Parameters();
  auto other = Parameters();
  const auto one = MakeOptimizer(GetParam(), Named(skipping));
  const auto two = MakeOptimizer(GetParam(), Named(other));
  const at::Tensor rate = RateOn(at::kCPU, 0.1);
  for (int step = 0; step < 3; ++step) {
    SetGradients(skipping, other, 0);
    one->Step(rate, at::zeros({}));
    two->Step(rate, {});
    for (auto& parameter : skipping)
      parameter.mutable_grad() = at::full_like(parameter.detach(), std::nanf(""));
    one->Step(rate, at::ones({}));
  }
  EXPECT_EQ(LargestDifference(skipping, other), 0);
  const NamedTensors state = one->State();
  for (std::size_t i = 0; i < state.size(); ++i)
    EXPECT_TRUE(at::equal(state[i].second, two->State()[i].second)) << state[i].first;
}

INSTANTIATE_TEST_SUITE_P(All, SkipTest,
                         testing::Values(Config{.momentum = 0},
                                         Config{.momentum = 0.9, .nesterov = true},
                                         Config{.optimizer = "adam"}, Config{.optimizer = "adamw"},
                                         Config{.optimizer = "muon"}));

// What a checkpoint does: another optimizer with the state copied in goes on as the first.
TEST(OptimizerState, IsAllThatTheNextStepNeeds) {
  for (const std::string kind : {"sgd", "adam", "adamw"}) {
    auto first = Parameters();
    auto second = Parameters();
    const Config config{.optimizer = kind, .momentum = 0.9};
    const auto one = MakeOptimizer(config, Named(first));
    SetGradients(first, second, 0);
    one->Step(0.1);

    const auto two = MakeOptimizer(config, Named(second));
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].copy_(first[i]);
    const NamedTensors from = one->State();
    const NamedTensors to = two->State();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].first, to[i].first);
      at::Tensor(to[i].second).copy_(from[i].second);
    }
    SetGradients(first, second, 2);
    one->Step(0.1);
    two->Step(0.1);
    EXPECT_EQ(LargestDifference(first, second), 0) << kind;
  }
}

TEST(OptimizerState, HasPythonsNames) {
  const auto parameters = Named({at::zeros({2}).requires_grad_()});
  const auto names = [&](const Config& config) {
    std::vector<std::string> list;
    for (const auto& [name, tensor] : MakeOptimizer(config, parameters)->State())
      list.push_back(name);
    return list;
  };
  EXPECT_THAT(names({.momentum = 0.9}), testing::ElementsAre("p0/momentum_buffer"));
  EXPECT_THAT(names({.momentum = 0}), testing::IsEmpty());
  EXPECT_THAT(names({.optimizer = "adamw"}),
              testing::UnorderedElementsAre("p0/exp_avg", "p0/exp_avg_sq", "p0/step"));
}

}  // namespace
}  // namespace ddprun
