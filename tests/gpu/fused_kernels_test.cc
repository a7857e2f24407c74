// SPDX-License-Identifier: Apache-2.0
// The kernels of airbench's pool, norm and GELU, and of the optimizers' steps, beside LibTorch's
// operations on a GPU: the same numbers, and how long each takes as part of a CUDA graph, by lines
//   pool_norm_gelu 2000x64x31x31 kernels_us 120.5 aten_us 700.1
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/device_time.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/layers/batch_norm.h"
#include "worker/train/optimizer/optimizer.h"
#include "worker/train/parallel/cast_weights.h"

namespace ddprun {
namespace {

const at::Device kFirstGpu(at::kCUDA, 0);

class WithOrWithoutKernels : public testing::Test {
 protected:
  void SetUp() override {
    DDPRUN_NEEDS_GPUS(1);
    LoadAccelerator().SetDevice(0);
    LoadAccelerator().UseOwnStream(0);
  }
  void TearDown() override { UseFusedKernels(true); }
};

struct Passes {
  at::Tensor out;
  at::Tensor gradient;
  double microseconds = 0;
};

at::Tensor Gelu(BatchNorm& norm, const at::Tensor& x, bool pool) {
  return pool ? norm->PoolGelu(x) : norm->Gelu(x);
}

class NormGeluOnGpu : public WithOrWithoutKernels {
 protected:
  // Forward and backward.
  static Passes Measure(at::IntArrayRef sizes, at::ScalarType type, bool pool, bool kernels) {
    UseFusedKernels(kernels);
    torch::manual_seed(1);
    BatchNorm norm(torch::nn::BatchNorm2dOptions(sizes[1]).eps(1e-12).momentum(0.4));
    norm->to(kFirstGpu);
    at::Tensor x = at::randn(sizes, at::TensorOptions(kFirstGpu).dtype(type));
    x = x.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const at::Tensor given = at::randn_like(Gelu(norm, x, pool));
    Passes passes;
    passes.microseconds = GraphMicroseconds([&] {
      x.mutable_grad().reset();
      passes.out = Gelu(norm, x, pool);
      passes.out.backward(given);
      passes.gradient = x.grad();
    });
    return passes;
  }

  static void Compare(at::IntArrayRef sizes, at::ScalarType type, bool pool) {
    const Passes aten = Measure(sizes, type, pool, false);
    const Passes own = Measure(sizes, type, pool, true);
    const double ulp = type == at::kBFloat16 ? 0x1p-7 : type == at::kHalf ? 0x1p-10 : 0x1p-20;
    const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
      const double largest = b.abs().max().item<double>();
      return (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<double>() <= 2 * ulp * largest;
    };
    EXPECT_TRUE(near(own.out, aten.out));
    EXPECT_TRUE(near(own.gradient, aten.gradient));
    std::printf("%s %lldx%lldx%lldx%lld kernels_us %.2f aten_us %.2f\n",
                pool ? "pool_norm_gelu" : "norm_gelu", static_cast<long long>(sizes[0]),
                static_cast<long long>(sizes[1]), static_cast<long long>(sizes[2]),
                static_cast<long long>(sizes[3]), own.microseconds, aten.microseconds);
  }
};

TEST_F(NormGeluOnGpu, IsAtens) {
  // The shapes of the speedrun recipe.
  Compare({2000, 64, 31, 31}, at::kBFloat16, true);
  Compare({2000, 64, 15, 15}, at::kBFloat16, false);
  Compare({2000, 256, 15, 15}, at::kBFloat16, true);
  Compare({2000, 256, 7, 7}, at::kHalf, true);
  Compare({2000, 256, 3, 3}, at::kHalf, false);
  Compare({17, 24, 9, 13}, at::kFloat, true);
}

class OptimizersOnGpu : public WithOrWithoutKernels {
 protected:
  static std::pair<std::vector<at::Tensor>, double> Measure(const char* which, bool kernels) {
    UseFusedKernels(kernels);
    torch::manual_seed(2);
    NamedTensors parameters;
    // About ResNet-18's.
    for (int i = 0; i < 20; ++i) {
      const at::Tensor filters = at::randn({512, 128, 3, 3}, at::TensorOptions(kFirstGpu));
      parameters.emplace_back("filters" + std::to_string(i),
                              filters.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_());
      parameters.emplace_back("bias" + std::to_string(i),
                              at::randn({511}, at::TensorOptions(kFirstGpu)).requires_grad_());
    }
    Config config;
    config.optimizer = which;
    const auto optimizer = MakeOptimizer(config, parameters);
    CastWeights casts(parameters, kFirstGpu, at::kBFloat16, *optimizer);
    for (const auto& [name, parameter] : parameters)
      parameter.mutable_grad() = at::randn_like(parameter.detach());
    const at::Tensor rate = RateOn(kFirstGpu, 1e-4);
    const double time = GraphMicroseconds([&] {
      optimizer->Step(rate, {});
      casts.AfterStep();
    });
    std::vector<at::Tensor> results;
    for (const auto& [name, parameter] : parameters) results.push_back(parameter.detach());
    return {results, time};
  }
};

TEST_F(OptimizersOnGpu, StepAsAtens) {
  for (const char* name : {"sgd", "muon"}) {
    const auto [aten, aten_time] = Measure(name, false);
    const auto [own, own_time] = Measure(name, true);
    // The result of several hundred steps.
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_TRUE(at::allclose(own[i], aten[i], 1e-3, 1e-3)) << name << " " << i;
    std::printf("%s_and_casts kernels_us %.2f aten_us %.2f\n", name, own_time, aten_time);
  }
}

class StemOnGpu : public WithOrWithoutKernels {
 protected:
  // Forward, and backward to the filters, which have three channels in both.
  static std::pair<at::Tensor, double> Measure(std::int64_t images, bool eight) {
    torch::manual_seed(3);
    const auto options = at::TensorOptions(kFirstGpu).dtype(at::kBFloat16);
    at::Tensor x = at::randn({images, 3, 32, 32}, options);
    if (eight) x = at::constant_pad_nd(x, {0, 0, 0, 0, 0, 5});
    x = x.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor filters = at::randn({64, 3, 3, 3}, options)
                                   .contiguous(at::MemoryFormat::ChannelsLast)
                                   .requires_grad_();
    const at::Tensor given =
        at::randn({images, 64, 32, 32}, options).contiguous(at::MemoryFormat::ChannelsLast);
    const double time = GraphMicroseconds([&] {
      filters.mutable_grad().reset();
      const at::Tensor taken = eight ? at::constant_pad_nd(filters, {0, 0, 0, 0, 0, 5}) : filters;
      at::conv2d(x, taken, /*bias=*/{}, /*stride=*/1, /*padding=*/1).backward(given);
    });
    return {filters.grad(), time};
  }
};

// Whether images of three channels should lie as eight, of which five are zero: models do not have
// it before this line says that it pays.
TEST_F(StemOnGpu, OfEightChannels) {
  at::globalContext().setBenchmarkCuDNN(true);
  for (const std::int64_t images : {128, 512, 2000}) {
    const auto [three, three_time] = Measure(images, false);
    const auto [eight, eight_time] = Measure(images, true);
    EXPECT_EQ(eight.sizes(), three.sizes());
    const double largest = three.abs().max().item<double>();
    EXPECT_LE((eight - three).abs().max().item<double>(), 0.02 * largest);
    std::printf("stem %lldx3x32x32 three_channels_us %.2f eight_channels_us %.2f\n",
                static_cast<long long>(images), three_time, eight_time);
  }
}

}  // namespace
}  // namespace ddprun
