// SPDX-License-Identifier: Apache-2.0
// Weights that stay cast give autocast's numbers, bit by bit, whoever changes the weights.
#include "worker/train/parallel/cast_weights.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/train/parallel/precision.h"

namespace ddprun {
namespace {

namespace nn = torch::nn;

struct Net : nn::Module {
  Net()
      : conv(register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3)))),
        norm(register_module("norm", nn::BatchNorm2d(8))),
        fc(register_module("fc", nn::Linear(8, 4))) {}

  at::Tensor forward(const at::Tensor& x) {
    return fc->forward(norm->forward(conv->forward(x)).relu().mean({2, 3}));
  }

  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::Linear fc;
};

NamedTensors ParametersOf(const Net& net) {
  NamedTensors parameters;
  for (const auto& item : net.named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

at::Tensor Scores(Net& net, at::ScalarType type, std::int64_t seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const at::Tensor images = at::randn({6, 3, 8, 8});
  const Autocast autocast(at::kCPU, type);
  return net.forward(images);
}

// What a training comes to that also has its weights halved from outside, and is evaluated.
enum class Casts { kAutocasts, kStay, kStayAndGather };

std::vector<at::Tensor> Train(const Config& config, at::ScalarType type, Casts how) {
  torch::manual_seed(1);
  Net net;
  const NamedTensors parameters = ParametersOf(net);
  const auto optimizer = MakeOptimizer(config, parameters);
  std::optional<CastWeights> casts;
  if (how != Casts::kAutocasts)
    casts.emplace(parameters, at::kCPU, type, *optimizer, how == Casts::kStayAndGather);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 6; ++step) {
    for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
    if (casts) casts->RefreshIfChanged();
    // Two batches, whose gradients are added.
    for (int batch = 0; batch < 2; ++batch) {
      const at::Tensor scores = Scores(net, type, 2 * step + batch);
      EXPECT_EQ(scores.scalar_type(), type);
      scores.to(at::kFloat).square().mean().backward();
      if (casts) casts->GatherGradients();
    }
    for (const auto& [name, parameter] : parameters)
      EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat) << name;
    optimizer->Step(0.1);
    if (casts) casts->AfterStep();
    const torch::NoGradGuard no_grad;
    if (step == 1) {
      // Seen by the next step alone.
      for (const auto& [name, parameter] : parameters) parameter.detach().copy_(parameter * 0.75);
      continue;
    }
    if (step == 3) {
      for (const auto& [name, parameter] : parameters) at::Tensor(parameter).mul_(0.5);
      if (casts) casts->Refresh();
    }
    results.push_back(Scores(net, type, 100));
  }
  for (const auto& [name, parameter] : parameters) results.push_back(parameter.detach().clone());
  return results;
}

TEST(CastWeights, GiveAutocastsNumbers) {
  for (const char* optimizer : {"sgd", "adamw", "muon"}) {
    Config config;
    config.optimizer = optimizer;
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const auto expected = Train(config, type, Casts::kAutocasts);
      for (const Casts how : {Casts::kStay, Casts::kStayAndGather}) {
        const auto results = Train(config, type, how);
        ASSERT_EQ(results.size(), expected.size());
        for (std::size_t i = 0; i < results.size(); ++i)
          EXPECT_TRUE(results[i].equal(expected[i])) << optimizer << ", result " << i;
      }
    }
  }
}

// What a reducer averages while backward goes on: the last layer's gradient is there before
// backward has come to the first one.
TEST(CastWeights, GiveEachGradientAsSoonAsItIsThere) {
  Net net;
  const NamedTensors parameters = ParametersOf(net);
  const auto optimizer = MakeOptimizer({}, parameters);
  const CastWeights casts(parameters, at::kCPU, at::kBFloat16, *optimizer);
  std::vector<std::string> order;
  for (const auto& [name, parameter] : parameters)
    parameter.register_hook([&order, name = name](const at::Tensor&) { order.push_back(name); });
  const at::Tensor scores = Scores(net, at::kBFloat16, 1);
  scores.to(at::kFloat).square().mean().backward();
  ASSERT_EQ(order.size(), parameters.size());
  const auto place = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  EXPECT_LT(place("fc.weight"), place("norm.weight"));
  EXPECT_LT(place("fc.bias"), place("norm.weight"));
  EXPECT_LT(place("norm.weight"), place("conv.weight"));
}

// Nothing of them is left to a later training, or to an evaluation of another model.
TEST(CastWeights, EndWithTheirTraining) {
  Net net;
  const NamedTensors parameters = ParametersOf(net);
  const auto optimizer = MakeOptimizer({}, parameters);
  at::Tensor before;
  {
    const CastWeights casts(parameters, at::kCPU, at::kBFloat16, *optimizer);
    before = Scores(net, at::kBFloat16, 1);
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) at::Tensor(parameter).zero_();
  EXPECT_FALSE(Scores(net, at::kBFloat16, 1).equal(before));
  EXPECT_EQ(Scores(net, at::kBFloat16, 1).abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace ddprun
