// SPDX-License-Identifier: Apache-2.0
// Batch norm by the kernels of batch_norm.cu, which the CPU runs here, beside LibTorch's operations
// in double: results may differ by a few units in the last place of their type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/emulated_kernels.h"
#include "tests/testing/threads_sum.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/layers/batch_norm.h"

namespace ddprun {
namespace {

struct NormShape {
  std::int64_t images, channels, side;
};

void PrintTo(const NormShape& shape, std::ostream* out) {
  *out << shape.images << "x" << shape.channels << "x" << shape.side;
}

struct Made {
  at::Tensor out, x_gradient, shortcut_gradient, weight_gradient, bias_gradient, mean, variance;
};

using Run = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& shortcut)>;

Made Train(torch::nn::BatchNorm2dImpl& norm, const Run& run, const at::Tensor& x,
           const at::Tensor& shortcut, const at::Tensor& gradient) {
  const at::Tensor input = x.detach().clone().requires_grad_();
  const at::Tensor added = shortcut.detach().clone().requires_grad_();
  const at::Tensor out = run(input, added);
  out.backward(gradient);
  return {out.detach(),     input.grad(),      added.grad(),    norm.weight.grad(),
          norm.bias.grad(), norm.running_mean, norm.running_var};
}

// What the weights and running statistics of both begin with.
void Begin(torch::nn::BatchNorm2dImpl& norm) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(9);
  const auto floats = norm.weight.options().dtype(at::kFloat);
  norm.weight.copy_(at::randn(norm.weight.sizes(), floats));
  norm.bias.copy_(at::randn(norm.bias.sizes(), floats));
  norm.running_mean.fill_(0.25);
  norm.running_var.fill_(2);
}

Run ByLayer(BatchNorm& norm, NormTail tail) {
  return [&norm, tail](const at::Tensor& x, const at::Tensor& shortcut) {
    switch (tail) {
      case NormTail::kRelu:
        return norm->Relu(x);
      case NormTail::kGelu:
        return norm->Gelu(x);
      case NormTail::kAddRelu:
        return norm->AddRelu(x, shortcut);
      case NormTail::kReluAdd:
        return norm->ReluAdd(x, shortcut);
      case NormTail::kNone:
        break;
    }
    return norm->forward(x);
  };
}

Run ByOperations(torch::nn::BatchNorm2d& norm, NormTail tail) {
  return [&norm, tail](const at::Tensor& x, const at::Tensor& shortcut) {
    const at::Tensor out = norm->forward(x);
    if (tail == NormTail::kRelu) return out.relu();
    if (tail == NormTail::kGelu) return at::gelu(out);
    if (tail == NormTail::kAddRelu) return (out + shortcut).relu();
    if (tail == NormTail::kReluAdd) return out.relu() + shortcut;
    return out;
  };
}

// A unit in the last place of a number of this size.
double UnitOf(at::ScalarType type, double size) {
  const int digits = type == at::kFloat ? 23 : type == at::kHalf ? 10 : 7;
  return std::ldexp(1.0, std::ilogb(std::max(size, 1e-30)) - digits);
}

// At most so many units of the largest number apart, or of `terms` where the result is a difference
// of larger ones.
void ExpectNear(const at::Tensor& actual, const at::Tensor& expected, at::ScalarType type,
                double units, const char* what, double terms = 0) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!expected.defined()) return;
  const double largest = std::max(terms, expected.abs().max().item<double>());
  const double apart =
      (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(apart, units * UnitOf(type, largest)) << what << " of at most " << largest;
}

class BatchNormKernelTest
    : public testing::TestWithParam<std::tuple<at::ScalarType, NormTail, NormShape>> {};

TEST_P(BatchNormKernelTest, IsLibTorchsButForRounding) {
  const auto& [type, tail, shape] = GetParam();
  torch::manual_seed(7);
  const auto images = [type = type, shape = shape] {
    return at::randn({shape.images, shape.channels, shape.side, shape.side})
        .to(type)
        .contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = (images() * 2 + 0.5).to(type);
  const at::Tensor shortcut = images();
  const at::Tensor gradient = images();

  BatchNorm ours(shape.channels);
  Begin(*ours);
  const auto emulator = EmulatedKernels();
  Made made;
  {
    const KernelsOnCpu on_cpu(*emulator);
    made = Train(*ours, ByLayer(ours, tail), x, shortcut, gradient);
  }
  const std::int64_t pack = type == at::kFloat ? 4 : 8;
  const bool by_channels = shape.channels % pack == 0 && tail != NormTail::kGelu &&
                           shape.images * shape.side * shape.side <= 8192;
  ASSERT_EQ(emulator->TakeLaunches().size(), by_channels ? 2u : 6u);
  EXPECT_EQ(made.out.scalar_type(), type);
  EXPECT_TRUE(made.out.is_contiguous(at::MemoryFormat::ChannelsLast));

  torch::nn::BatchNorm2d exact(shape.channels);
  exact->to(at::kDouble);
  Begin(*exact);
  const Made expected = Train(*exact, ByOperations(exact, tail), x.to(at::kDouble),
                              shortcut.to(at::kDouble), gradient.to(at::kDouble));
  // Near zero a ReLU may let through what in double it does not.
  const double units = type == at::kFloat ? 16 : 2;
  ExpectNear(made.out, expected.out, type, units, "out");
  const at::Tensor deviation = (x.to(at::kDouble).var({0, 2, 3}, /*unbiased=*/false) + 1e-5).sqrt();
  const double terms =
      gradient.abs().max().item<double>() * (exact->weight.abs() / deviation).max().item<double>();
  ExpectNear(made.x_gradient, expected.x_gradient, type, units, "gradient of x", terms);
  if (HasShortcut(tail))
    ExpectNear(made.shortcut_gradient, expected.shortcut_gradient, type, 0, "of the shortcut");
  const at::ScalarType sums = tail == NormTail::kGelu ? type : at::kFloat;
  ExpectNear(made.weight_gradient, expected.weight_gradient, sums, 32, "gradient of the weight");
  ExpectNear(made.bias_gradient, expected.bias_gradient, sums, 32, "gradient of the bias");
  ExpectNear(made.mean, expected.mean, at::kFloat, 2, "running mean");
  ExpectNear(made.variance, expected.variance, at::kFloat, 4, "running variance");
  EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Types, BatchNormKernelTest,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Values(NormTail::kNone, NormTail::kRelu,
                                                          NormTail::kAddRelu, NormTail::kReluAdd,
                                                          NormTail::kGelu),
                                          testing::Values(NormShape{4, 8, 9}, NormShape{3, 7, 5})));
INSTANTIATE_TEST_SUITE_P(
    Shapes, BatchNormKernelTest,
    testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                     testing::Values(NormTail::kAddRelu),
                     testing::Values(NormShape{2, 1, 1}, NormShape{31, 3, 1}, NormShape{10, 64, 10},
                                     NormShape{2, 100, 3}, NormShape{2, 512, 2},
                                     NormShape{5, 24, 14}, NormShape{33, 24, 16},
                                     NormShape{9, 72, 31})));

// So many that a block has all rows of its channels, and so many that blocks share them.
class BatchNormImages : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(All, BatchNormImages, testing::Values(8, 60));

// A module with one channel block whose x lies far from zero.
TEST_P(BatchNormImages, AMeanFarFromZeroCostsNoDigits) {
  torch::manual_seed(3);
  const at::Tensor x =
      (at::randn({GetParam(), 16, 12, 12}) + 1000).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor exact = x.to(at::kDouble);
  BatchNorm norm(16);
  const auto emulator = EmulatedKernels(/*multiprocessors=*/5);
  const KernelsOnCpu on_cpu(*emulator);
  const at::Tensor out = norm->forward(x);
  const at::Tensor mean = exact.mean({0, 2, 3}, true);
  const at::Tensor variance = exact.var({0, 2, 3}, /*unbiased=*/false, true);
  const at::Tensor expected = (exact - mean) / (variance + 1e-5).sqrt();
  // A mean of 1000 is known to 3e-5.
  EXPECT_LT((out - expected).abs().max().item<double>(), 5e-5);
  EXPECT_LT(
      (norm->running_var - (0.9 + 0.1 * exact.var({0, 2, 3}, true))).abs().max().item<double>(),
      1e-6);
}

// One that the batch's other values are far from does not spoil the variance.
TEST_P(BatchNormImages, AFirstRowFarFromTheOthersCostsNoDigits) {
  torch::manual_seed(3);
  at::Tensor x = at::randn({GetParam(), 16, 12, 12}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0].select(1, 0).select(1, 0).fill_(100);
  BatchNorm norm(16);
  const auto emulator = EmulatedKernels(/*multiprocessors=*/5);
  const KernelsOnCpu on_cpu(*emulator);
  norm->forward(x);
  const at::Tensor variance = 0.9 + 0.1 * x.to(at::kDouble).var({0, 2, 3}, true);
  EXPECT_LT(((norm->running_var - variance) / variance).abs().max().item<double>(), 1e-6);
}

TEST_P(BatchNormImages, OneResultHoweverOftenItIsMade) {
  torch::manual_seed(5);
  const at::Tensor x =
      at::randn({GetParam(), 8, 12, 12}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  BatchNorm a(8);
  BatchNorm b(8);
  const Made first = Train(*a, ByLayer(a, NormTail::kRelu), x, x, x);
  const Made second = Train(*b, ByLayer(b, NormTail::kRelu), x, x, x);
  EXPECT_TRUE(at::equal(first.x_gradient, second.x_gradient));
  EXPECT_TRUE(at::equal(first.weight_gradient, second.weight_gradient));
}

TEST(BatchNormKernel, EvaluationUsesRunningStatistics) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const auto emulator = EmulatedKernels();
  for (const NormTail tail : {NormTail::kNone, NormTail::kRelu, NormTail::kAddRelu,
                              NormTail::kReluAdd, NormTail::kGelu}) {
    BatchNorm ours(24);
    Begin(*ours);
    ours->eval();
    torch::nn::BatchNorm2d exact(24);
    exact->to(at::kDouble);
    Begin(*exact);
    exact->eval();
    const at::Tensor x = at::randn({3, 24, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor wide = x.to(at::kDouble);
    const KernelsOnCpu on_cpu(*emulator);
    ExpectNear(ByLayer(ours, tail)(x, x), ByOperations(exact, tail)(wide, wide), at::kFloat, 4,
               "out");
    EXPECT_EQ(emulator->TakeLaunches().size(), 2u);
    EXPECT_TRUE(at::equal(ours->running_mean, at::full({24}, 0.25)));
    EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 0);
  }
}

TEST(BatchNormKernel, AGradientMayLieInAnyWay) {
  torch::manual_seed(5);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor gradient = at::randn_like(x);
  const auto gradient_of = [&](const at::Tensor& given) {
    BatchNorm norm(8);
    return Train(*norm, ByLayer(norm, NormTail::kRelu), x, x, given).x_gradient;
  };
  const at::Tensor expected = gradient_of(gradient);
  EXPECT_TRUE(at::equal(gradient_of(gradient.contiguous()), expected));
  const at::Tensor odd = at::cat({at::zeros({1}), gradient.permute({0, 2, 3, 1}).flatten()})
                             .as_strided(x.sizes(), x.strides(), /*storage_offset=*/1);
  EXPECT_TRUE(at::equal(gradient_of(odd), expected));
  EXPECT_TRUE(
      at::equal(gradient_of(at::ones({1, 8, 1, 1}).expand_as(x)), gradient_of(at::ones_like(x))));
}

// What a block and its shortcut give back reaches the norm before them as one gradient, also where
// one of them is not used or somebody else uses the same tensor.
TEST(BatchNormKernel, AddsUpTheGradientsOfAFork) {
  torch::manual_seed(6);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor added = at::randn_like(x);
  const at::Tensor of_block = at::randn_like(x);
  const at::Tensor of_shortcut = at::randn_like(x).contiguous();  // in another order of memory
  const at::Tensor of_other = at::randn_like(x);
  const auto gradients_of = [&](bool forked, bool block, bool shortcut, bool other) {
    BatchNorm norm(8);
    const at::Tensor input = x.clone().requires_grad_();
    const at::Tensor side = added.clone().requires_grad_();
    const at::Tensor out = norm->AddRelu(input, side);
    const auto [first, second] = forked ? Fork(out) : std::pair(out, out);
    EXPECT_EQ(first.grad_fn() != out.grad_fn(), forked);
    at::Tensor sum = at::zeros({});
    if (block) sum = sum + (first * of_block).sum();
    if (shortcut) sum = sum + (second * of_shortcut).sum();
    if (other) sum = sum + (out * of_other).sum();
    sum.backward();
    return std::vector<at::Tensor>{input.grad(), side.grad(), norm->weight.grad(),
                                   norm->bias.grad()};
  };
  for (const auto& [block, shortcut, other] : {std::array{true, true, false},
                                               {true, true, true},
                                               {true, false, false},
                                               {false, true, false}}) {
    const auto expected = gradients_of(false, block, shortcut, other);
    const auto seen = gradients_of(true, block, shortcut, other);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(seen[i], expected[i], 1e-4, 1e-5)) << i;
  }
  const at::Tensor plain = at::randn({2, 8, 3, 3}).requires_grad_();
  EXPECT_TRUE(Fork(plain).first.is_same(plain)) << "nothing that could add them up comes before it";
}

TEST(BatchNormKernel, WeightsThatAreNotTrainedGetNoGradient) {
  BatchNorm norm(8);
  norm->weight.set_requires_grad(false);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  norm->Gelu(x.clone().requires_grad_()).sum().backward();
  EXPECT_FALSE(norm->weight.grad().defined());
  EXPECT_TRUE(norm->bias.grad().defined());
}

TEST(BatchNormKernel, OtherInputsTakeLibTorchsOperations) {
  BatchNorm ours(8);
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  ours->Relu(x.contiguous());
  EXPECT_THROW(ours->forward(x.narrow(0, 0, 1).narrow(2, 0, 1).narrow(3, 0, 1).contiguous()),
               c10::Error);
  ours->AddRelu(x, x.contiguous());
  // From an odd address.
  ours->forward(at::randn({2 * 8 * 3 * 3 + 1})
                    .narrow(0, 1, 2 * 8 * 3 * 3)
                    .as_strided(x.sizes(), x.strides(), /*storage_offset=*/1));
  ours->eval();
  ours->Gelu(x);
  UseFusedKernels(false);
  ours->train();
  ours->forward(x);
  UseFusedKernels(true);
  EXPECT_THAT(emulator->TakeLaunches(), testing::IsEmpty());
}

TEST(BatchNormKernel, NotANumberStaysOne) {
  BatchNorm norm(16);
  at::Tensor x = at::randn({2, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0][3][1][1] = std::nan("");
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  const at::Tensor out = norm->Relu(x);
  EXPECT_TRUE(out.select(1, 3).isnan().all().item<bool>());
  EXPECT_FALSE(out.select(1, 2).isnan().any().item<bool>());
}

// Two ranks, with other batch sizes; `second` is how the second rank's images lie in memory. Where
// they are not channels-last, that rank has LibTorch's operations, and both must understand each
// other.
void ExpectAsOneProcess(at::MemoryFormat second) {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({5, 16, 4, 4}) * 3 + 20;
  const at::Tensor gradient = at::randn(x.sizes());
  torch::nn::BatchNorm2d exact(16);
  exact->to(at::kDouble);
  Begin(*exact);
  const Made expected = Train(*exact, ByOperations(exact, NormTail::kRelu), x.to(at::kDouble),
                              x.to(at::kDouble), gradient.to(at::kDouble));

  ThreadsSum sum;
  const auto emulator = EmulatedKernels(/*multiprocessors=*/3);
  const KernelsOnCpu on_cpu(*emulator);
  std::array<Made, ThreadsSum::kRanks> made;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < ThreadsSum::kRanks; ++rank) {
    BatchNorm norm(16);
    Begin(*norm);
    norm->Synchronize([&sum, rank](at::Tensor& values) { sum.Add(rank, values); });
    ranks.emplace_back([&, rank, norm]() mutable {
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, rank == 0 ? 0 : 2, rank == 0 ? 2 : 3)
            .contiguous(rank == 0 ? at::MemoryFormat::ChannelsLast : second);
      };
      made[static_cast<std::size_t>(rank)] =
          Train(*norm, ByLayer(norm, NormTail::kRelu), part(x), part(x), part(gradient));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const auto& [a, b] = made;
  ExpectNear(at::cat({a.out, b.out}), expected.out, at::kFloat, 16, "out");
  ExpectNear(at::cat({a.x_gradient, b.x_gradient}), expected.x_gradient, at::kFloat, 32,
             "gradient of x");
  ExpectNear(a.weight_gradient + b.weight_gradient, expected.weight_gradient, at::kFloat, 32,
             "gradient of the weight");
  ExpectNear(a.bias_gradient + b.bias_gradient, expected.bias_gradient, at::kFloat, 32,
             "gradient of the bias");
  for (const Made& rank : made) {
    ExpectNear(rank.mean, expected.mean, at::kFloat, 4, "running mean");
    ExpectNear(rank.variance, expected.variance, at::kFloat, 8, "running variance");
  }
}

TEST(BatchNormKernel, TwoRanksAreOneProcessOnAllTheirImages) {
  ExpectAsOneProcess(at::MemoryFormat::ChannelsLast);
}

TEST(BatchNormKernel, ARankWithoutKernelsIsUnderstood) {
  ExpectAsOneProcess(at::MemoryFormat::Contiguous);
}

}  // namespace
}  // namespace ddprun
