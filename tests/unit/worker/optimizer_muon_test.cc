// SPDX-License-Identifier: Apache-2.0
#include "worker/train/speedrun/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/testing/emulated_kernels.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/speedrun/whitening.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::Le;

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).flatten().contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// a s + b s^3 + c s^5, three times: what the iteration does to a singular value of the matrix,
// after it was divided by its norm.
double Polynomial(double s) {
  for (int i = 0; i < 3; ++i) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  return s;
}

TEST(Orthogonal, ChangesSingularValuesAsThePolynomialSaysAndNoDirection) {
  torch::manual_seed(1);
  const auto [left, none, right] = at::linalg_svd(at::randn({8, 20}, at::kDouble), false);
  const at::Tensor values = at::linspace(0.2, 1, 8, at::kDouble);
  const at::Tensor matrix = left.matmul(at::diag(values)).matmul(right);
  at::Tensor expected = values / values.norm();
  for (std::int64_t i = 0; i < 8; ++i) expected[i] = Polynomial(expected[i].item<double>());
  const at::Tensor result = Orthogonal(matrix.unsqueeze(0))[0];
  EXPECT_LT(Difference(result, left.matmul(at::diag(expected)).matmul(right)), 1e-6);
}

TEST(Orthogonal, SingularValuesComeNearOne) {
  torch::manual_seed(2);
  const at::Tensor results = Orthogonal(at::randn({5, 16, 64}));
  EXPECT_THAT(Values(at::linalg_svdvals(results)), Each(AllOf(Ge(0.5), Le(1.3))));
}

TEST(Orthogonal, FillingUpWithZerosChangesNothing) {
  torch::manual_seed(3);
  const at::Tensor matrices = at::randn({2, 6, 10});
  const at::Tensor filled = at::constant_pad_nd(matrices, {0, 7, 0, 0});
  EXPECT_LT(Difference(Orthogonal(filled).narrow(2, 0, 10), Orthogonal(matrices)), 1e-6);
}

TEST(Orthogonal, AMatrixOfZerosStays) {
  EXPECT_EQ(Values(Orthogonal(at::zeros({1, 2, 3}))), std::vector<double>(6, 0.0));
}

// All kinds of parameters; two banks of the same height, and one that is higher than wide.
NamedTensors Parameters(at::MemoryFormat format) {
  torch::manual_seed(4);
  NamedTensors parameters = {{"whiten.bias", at::randn({24})},
                             {"layers.1.conv1.weight", at::randn({16, 24, 3, 3})},
                             {"layers.1.conv2.weight", at::randn({16, 16, 3, 3})},
                             {"layers.2.conv1.weight", at::randn({32, 2, 3, 3})},
                             {"layers.1.norm1.bias", at::randn({16})},
                             {"head.weight", at::randn({10, 16})}};
  for (auto& [name, parameter] : parameters) {
    if (parameter.dim() == 4) parameter = parameter.contiguous(format);
    parameter.requires_grad_();
  }
  parameters.emplace_back("layers.1.norm1.weight", at::ones({16}));  // is not trained
  return parameters;
}

void SetGradients(NamedTensors& parameters, int step) {
  torch::manual_seed(100 + step);
  for (auto& [name, parameter] : parameters) {
    if (parameter.requires_grad()) parameter.mutable_grad() = at::randn_like(parameter.detach());
  }
}

Config Settings() {
  Config config;
  config.optimizer = "muon";
  config.lr = 0.24;
  config.muon_momentum = 0.6;
  config.momentum = 0.85;
  config.head_lr = 0.75;  // times 4 images
  config.bias_lr = 0.5;
  config.weight_decay = 0.004;
  config.whiten_epochs = 3;
  return config;
}

// The same step by step and one tensor at a time, as one would write it down.
class Reference {
 public:
  void Step(NamedTensors& parameters, double rate, double whiten_rate) {
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : parameters) {
      if (!parameter.requires_grad()) continue;
      at::Tensor& velocity = velocities_.try_emplace(name, at::zeros_like(parameter)).first->second;
      if (parameter.dim() == 4) {
        Turn(parameter, velocity, rate);
      } else {
        const double top = parameter.dim() == 2 ? 3 : 2;
        const double own = name == "whiten.bias" ? whiten_rate : rate / 0.24 * top;
        const at::Tensor gradient = parameter.grad() + parameter * (0.004 / top);
        velocity = velocity * 0.85 + gradient;
        parameter -= (gradient + velocity * 0.85) * own;
      }
    }
  }

 private:
  static void Turn(at::Tensor& filters, at::Tensor& velocity, double rate) {
    velocity = velocity * 0.6 + filters.grad();
    at::Tensor matrix = (filters.grad() + velocity * 0.6).reshape({filters.size(0), -1});
    const bool high = matrix.size(0) > matrix.size(1);
    matrix = Orthogonal((high ? matrix.t() : matrix).unsqueeze(0))[0];
    const double length = std::sqrt(static_cast<double>(filters.size(0)));
    filters.copy_(filters * (length / filters.norm()) -
                  (high ? matrix.t() : matrix).reshape(filters.sizes()) * rate);
  }

  std::map<std::string, at::Tensor> velocities_;
};

class MuonTest : public testing::TestWithParam<at::MemoryFormat> {};

// Returns the parameters, and their casts if the optimizer writes them.
std::pair<NamedTensors, NamedTensors> ExpectStepsAsWrittenDown(at::MemoryFormat format) {
  NamedTensors ours = Parameters(format);
  NamedTensors theirs = Parameters(at::MemoryFormat::Contiguous);
  const auto optimizer = MakeMuon(Settings(), ours, {.steps_per_epoch = 2, .images = 4});
  NamedTensors casts;
  for (const auto& [name, parameter] : ours)
    if (parameter.requires_grad()) casts.emplace_back(name, parameter.detach().to(at::kBFloat16));
  if (!optimizer->WriteCasts(casts)) casts.clear();
  Reference reference;
  for (int step = 0; step < 8; ++step) {
    SetGradients(ours, step);
    for (std::size_t i = 0; i < ours.size(); ++i)
      theirs[i].second.mutable_grad() = ours[i].second.grad();
    const double rate = 0.24 * (1 - step / 10.0);
    optimizer->Step(rate);
    reference.Step(theirs, rate, 2 * std::max(0.0, 1 - step / 6.0));
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(Difference(ours[i].second, theirs[i].second), 2e-4) << ours[i].first << " " << step;
  }
  EXPECT_EQ(Values(ours.back().second), std::vector<double>(16, 1.0));
  return {ours, casts};
}

TEST_P(MuonTest, StepsAsWrittenDown) {
  EXPECT_TRUE(ExpectStepsAsWrittenDown(GetParam()).second.empty());
}

TEST_P(MuonTest, KernelsStepAsWrittenDownAndWriteCasts) {
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  const auto [parameters, casts] = ExpectStepsAsWrittenDown(GetParam());
  const auto launches = kernels->TakeLaunches();
  // 8 steps of two banks, and of whitening, biases and head.
  EXPECT_EQ(launches.at("muon_directions_float"), 16);
  EXPECT_EQ(launches.at("muon_update_float"), 16);
  EXPECT_EQ(launches.at("sgd_step_bf16"), 24);
  ASSERT_EQ(casts.size(), 6u);
  for (std::size_t i = 0; i < casts.size(); ++i)
    EXPECT_TRUE(casts[i].second.equal(parameters[i].second.detach().to(at::kBFloat16)))
        << casts[i].first;
}

TEST_P(MuonTest, KernelsLeaveAStepOut) {
  const auto kernels = EmulatedKernels();
  const KernelsOnCpu on_cpu(*kernels);
  NamedTensors parameters = Parameters(GetParam());
  const NamedTensors before = Parameters(GetParam());
  const auto optimizer = MakeMuon(Settings(), parameters, {.steps_per_epoch = 2, .images = 4});
  SetGradients(parameters, 0);
  optimizer->Step(RateOn(at::kCPU, 0.2), at::ones({}));
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(parameters[i].second.equal(before[i].second)) << before[i].first;
  for (const auto& [name, values] : optimizer->State())
    EXPECT_FALSE(values.any().item<bool>()) << name;
}

INSTANTIATE_TEST_SUITE_P(Formats, MuonTest,
                         testing::Values(at::MemoryFormat::Contiguous,
                                         at::MemoryFormat::ChannelsLast),
                         [](const auto& tested) {
                           return tested.param == at::MemoryFormat::Contiguous ? "planes"
                                                                               : "pixels";
                         });

TEST(Muon, ARateOnTheDeviceIsTheSameStep) {
  NamedTensors one = Parameters(at::MemoryFormat::ChannelsLast);
  NamedTensors other = Parameters(at::MemoryFormat::ChannelsLast);
  const auto with_number = MakeMuon(Settings(), one, {.steps_per_epoch = 2, .images = 4});
  const auto with_tensor = MakeMuon(Settings(), other, {.steps_per_epoch = 2, .images = 4});
  for (int step = 0; step < 2; ++step) {
    SetGradients(one, step);
    SetGradients(other, step);
    with_number->Step(0.125);
    with_tensor->Step(at::full({}, 0.125f), {});
  }
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(one[i].second.equal(other[i].second)) << one[i].first;
}

TEST(Muon, TheWhiteningsBiasStaysWhenItsEpochsAreOver) {
  NamedTensors parameters = Parameters(at::MemoryFormat::ChannelsLast);
  const auto optimizer = MakeMuon(Settings(), parameters, {.steps_per_epoch = 2, .images = 4});
  at::Tensor before;
  for (int step = 0; step < 8; ++step) {
    SetGradients(parameters, step);
    before = parameters[0].second.detach().clone();
    optimizer->Step(0.1);
    EXPECT_EQ(before.equal(parameters[0].second), step >= 6) << step;
  }
}

TEST(Muon, StateIsAllThatTheNextStepNeeds) {
  NamedTensors first = Parameters(at::MemoryFormat::ChannelsLast);
  NamedTensors second = Parameters(at::MemoryFormat::ChannelsLast);
  const auto one = MakeMuon(Settings(), first, {.steps_per_epoch = 2, .images = 4});
  for (int step = 0; step < 3; ++step) {
    SetGradients(first, step);
    one->Step(0.1);
  }
  const auto two = MakeMuon(Settings(), second, {.steps_per_epoch = 2, .images = 4});
  const NamedTensors from = one->State();
  const NamedTensors to = two->State();
  ASSERT_EQ(from.size(), 7u);  // a momentum buffer each, and the count of steps
  ASSERT_EQ(to.size(), from.size());
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].second.copy_(first[i].second);
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].first, to[i].first);
      at::Tensor(to[i].second).copy_(from[i].second);
    }
  }
  SetGradients(first, 3);
  SetGradients(second, 3);
  one->Step(0.1);
  two->Step(0.1);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(first[i].second.equal(second[i].second)) << first[i].first;
}

TEST(Muon, AParameterWithoutAGradientStays) {
  NamedTensors parameters = Parameters(at::MemoryFormat::ChannelsLast);
  const auto optimizer = MakeMuon(Settings(), parameters, {.steps_per_epoch = 2, .images = 4});
  SetGradients(parameters, 0);
  parameters[2].second.mutable_grad() = at::Tensor();
  parameters[4].second.mutable_grad() = at::Tensor();
  const NamedTensors before = {{"", parameters[1].second.detach().clone()},
                               {"", parameters[2].second.detach().clone()},
                               {"", parameters[4].second.detach().clone()}};
  optimizer->Step(0.1);
  EXPECT_FALSE(before[0].second.equal(parameters[1].second));
  EXPECT_TRUE(before[1].second.equal(parameters[2].second));
  EXPECT_TRUE(before[2].second.equal(parameters[4].second));
}

}  // namespace
}  // namespace ddprun
