// SPDX-License-Identifier: Apache-2.0
// The kernel of SGD, run on the CPU, makes torch.optim.SGD's steps within two units in the last
// place of the largest term, and writes casts that are those of the parameters.
#include "worker/train/optimizer/fused_sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <ostream>
#include <string>

#include "tests/testing/emulated_kernels.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

constexpr int kStepsMade = 4;
constexpr double kUlps = 2;

struct SgdCase {
  const char* name;
  Config config;
  at::ScalarType cast = at::kBFloat16;
};

void PrintTo(const SgdCase& c, std::ostream* out) { *out << c.name; }

// More than one launch takes, some longer than a block's share, some that no pack divides.
NamedTensors MakeParameters() {
  torch::manual_seed(4);
  NamedTensors parameters;
  for (std::int64_t i = 0; i < 70; ++i)
    parameters.emplace_back("vector" + std::to_string(i), at::randn({1 + 3 * i}).requires_grad_());
  parameters.emplace_back("block", at::randn({4096}).requires_grad_());
  parameters.emplace_back("blocks", at::randn({3, 4099}).requires_grad_());
  parameters.emplace_back(
      "filters",
      at::randn({16, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_());
  return parameters;
}

// As a bucket's views: some do not begin at a multiple of 16 bytes, and one is not there.
void SetGradients(const NamedTensors& parameters, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (const auto& [name, parameter] : parameters) {
    at::Tensor gradient = at::randn({parameter.numel() + 1}).narrow(0, step % 2, parameter.numel());
    gradient = parameter.dim() == 4 ? gradient.as_strided(parameter.sizes(), parameter.strides())
                                    : gradient.view(parameter.sizes());
    parameter.mutable_grad() = name == "vector5" ? at::Tensor() : gradient;
  }
}

struct SgdResult {
  NamedTensors parameters;
  NamedTensors state;
  NamedTensors casts;
};

SgdResult TrainBySgd(const SgdCase& c, const at::Tensor& skip = {}) {
  SgdResult result{.parameters = MakeParameters()};
  const auto optimizer = MakeOptimizer(c.config, result.parameters);
  for (const auto& [name, parameter] : result.parameters)
    result.casts.emplace_back(name, parameter.detach().to(c.cast));
  const bool writes = optimizer->WriteCasts(result.casts);
  if (!writes) result.casts.clear();
  for (int step = 0; step < kStepsMade; ++step) {
    SetGradients(result.parameters, step);
    optimizer->Step(RateOn(at::kCPU, 0.1 / (1 + step)), skip);
  }
  result.state = optimizer->State();
  return result;
}

// Terms are about as large as 4: gradients of a few steps.
void ExpectNear(const NamedTensors& own, const NamedTensors& expected) {
  constexpr double kLargest = 4;
  ASSERT_EQ(own.size(), expected.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double limit = kStepsMade * kUlps * std::numeric_limits<float>::epsilon() *
                         std::max(kLargest, expected[i].second.abs().max().item<double>());
    EXPECT_LE((own[i].second - expected[i].second).abs().max().item<double>(), limit)
        << own[i].first;
  }
}

class FusedSgdTest : public testing::TestWithParam<SgdCase> {};

TEST_P(FusedSgdTest, StepsAsPythons) {
  const SgdResult expected = TrainBySgd(GetParam());
  EXPECT_TRUE(expected.casts.empty());
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  const SgdResult result = TrainBySgd(GetParam());
  // 72 tensors of a step.
  int launches = 0;
  for (const auto& [name, count] : kernels->TakeLaunches()) launches += count;
  EXPECT_EQ(launches, 2 * kStepsMade);
  ExpectNear(result.parameters, expected.parameters);
  ExpectNear(result.state, expected.state);
  ASSERT_EQ(result.casts.size(), result.parameters.size());
  for (std::size_t i = 0; i < result.casts.size(); ++i) {
    const at::Tensor cast = result.parameters[i].second.detach().to(GetParam().cast);
    EXPECT_TRUE(result.casts[i].second.equal(cast)) << result.casts[i].first;
  }
}

TEST_P(FusedSgdTest, LeavesAStepOut) {
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  const SgdResult result = TrainBySgd(GetParam(), at::ones({}));
  const NamedTensors before = MakeParameters();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(result.parameters[i].second.equal(before[i].second)) << before[i].first;
  for (const auto& [name, velocity] : result.state) EXPECT_FALSE(velocity.any().item<bool>());
  ExpectNear(TrainBySgd(GetParam(), at::zeros({})).parameters, TrainBySgd(GetParam()).parameters);
}

INSTANTIATE_TEST_SUITE_P(All, FusedSgdTest,
                         testing::Values(SgdCase{"Nesterov", {}}, SgdCase{"Half", {}, at::kHalf},
                                         SgdCase{"Momentum",
                                                 {.weight_decay = 0, .nesterov = false}},
                                         SgdCase{"Plain", {.momentum = 0, .weight_decay = 0.01}}),
                         [](const auto& each) { return each.param.name; });

TEST(FusedSgd, OtherParametersAreAtens) {
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  EXPECT_NE(SgdKernels({{"a", at::ones({3})}}), nullptr);
  EXPECT_EQ(SgdKernels({}), nullptr);
  EXPECT_EQ(SgdKernels({{"a", at::ones({3})}, {"b", at::ones({3}, at::kDouble)}}), nullptr);
  EXPECT_EQ(SgdKernels({{"a", at::ones({3, 4}).slice(1, 0, 2)}}), nullptr);
}

}  // namespace
}  // namespace ddprun
