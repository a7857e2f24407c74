// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/tensor_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/emulated_kernels.h"
#include "worker/train/replicas/tensor_copy.h"
#include "worker/train/replicas/word_sum.h"

namespace ddprun {
namespace {

using testing::ElementsAre;

std::int64_t Sum(const std::vector<at::Tensor>& tensors) {
  return SumOf(tensors, at::kCPU).item<std::int64_t>();
}

void Flip(const at::Tensor& tensor, std::size_t bit) {
  static_cast<unsigned char*>(tensor.data_ptr())[bit / 8] ^=
      static_cast<unsigned char>(1U << (bit % 8));
}

TEST(WordSum, ChangesWithEachBitAtEachLength) {
  for (const std::size_t bytes : {1U, 7U, 8U, 255U, 256U, 257U, 600U}) {
    std::vector<unsigned char> block(bytes, 0x5a);
    const std::uint64_t sum = WordSum(block.data(), bytes);
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
      block[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      EXPECT_NE(WordSum(block.data(), bytes), sum) << bytes << " bytes, bit " << bit;
      block[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    }
    EXPECT_EQ(WordSum(block.data(), bytes), sum);
  }
}

std::vector<at::Tensor> Various() {
  torch::manual_seed(1);
  return {torch::randn({3, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast), torch::randn({}),
          torch::randn({7}, torch::kBFloat16), torch::ones({2}, torch::kLong),
          torch::ones({3}, torch::kBool)};
}

TEST(TensorSums, ChangeWithEachBitOfEachTensor) {
  const std::vector<at::Tensor> tensors = Various();
  const std::int64_t sum = Sum(tensors);
  for (const at::Tensor& tensor : tensors) {
    for (std::size_t bit = 0; bit < 8 * tensor.nbytes(); ++bit) {
      Flip(tensor, bit);
      EXPECT_NE(Sum(tensors), sum);
      Flip(tensor, bit);
    }
  }
  EXPECT_EQ(Sum(tensors), sum);
}

TEST(TensorSums, ByOperationsOfADeviceChangeWithEachBit) {
  const auto sum_of = [](const at::Tensor& tensor) {
    return SumByOperations(tensor).item<std::int64_t>();
  };
  for (const at::Tensor& tensor : Various()) {
    // The other bits of a bool mean nothing.
    const std::size_t bits = tensor.scalar_type() == at::kBool ? 1 : 8 * tensor.element_size();
    const std::int64_t sum = sum_of(tensor);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      for (std::size_t bit = 0; bit < bits; ++bit) {
        Flip(tensor, 8 * tensor.element_size() * static_cast<std::size_t>(i) + bit);
        EXPECT_NE(sum_of(tensor), sum);
        Flip(tensor, 8 * tensor.element_size() * static_cast<std::size_t>(i) + bit);
      }
    }
    EXPECT_EQ(sum_of(tensor), sum);
  }
}

TEST(TensorSums, ByKernelChangeWithBitsOfEachTensor) {
  const auto kernels = EmulatedKernels(4);
  std::vector<at::Tensor> tensors = Various();
  // Begins at no multiple of 16 bytes, and ends within a word.
  tensors.push_back(torch::randn({12}, torch::kBFloat16).narrow(0, 1, 5));
  const auto sum_of = [&] { return SumByKernel(*kernels, tensors).item<std::int64_t>(); };
  const std::int64_t sum = sum_of();
  for (const at::Tensor& tensor : tensors) {
    // The emulated kernel takes milliseconds: of a long tensor all bits of the first and last
    // words, and some between.
    const std::size_t bits = 8 * tensor.nbytes();
    for (std::size_t bit = 0; bit < bits; bit += bit < 128 || bit + 128 >= bits ? 1 : 61) {
      Flip(tensor, bit);
      EXPECT_NE(sum_of(), sum);
      Flip(tensor, bit);
    }
  }
  EXPECT_EQ(sum_of(), sum);
}

// More than one launch takes, some longer than a block's share.
TEST(TensorSums, ByKernelAreThoseOfTheSameBytesElsewhere) {
  const auto kernels = EmulatedKernels(4);
  torch::manual_seed(2);
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> shifted;
  for (std::int64_t i = 0; i < 70; ++i) {
    tensors.push_back(torch::randn({i == 66 ? 9001 : 1 + 3 * i}));
    shifted.push_back(
        torch::cat({torch::zeros({1}), tensors.back()}).narrow(0, 1, tensors.back().numel()));
  }
  const auto sum = SumByKernel(*kernels, tensors).item<std::int64_t>();
  EXPECT_EQ(kernels->TakeLaunches(), (std::map<std::string, int>{{"sum_words", 2}}));
  EXPECT_EQ(SumByKernel(*kernels, shifted).item<std::int64_t>(), sum);
  std::swap(tensors[3], tensors[68]);
  EXPECT_NE(SumByKernel(*kernels, tensors).item<std::int64_t>(), sum);
  std::swap(tensors[3], tensors[68]);
  Flip(tensors[66], 8 * 20'000);  // in the second block's share
  EXPECT_NE(SumByKernel(*kernels, tensors).item<std::int64_t>(), sum);
}

TEST(TensorSums, ChangeWhereTensorsAreExchanged) {
  const at::Tensor a = torch::full({4}, 1.0F);
  const at::Tensor b = torch::full({4}, 2.0F);
  EXPECT_NE(Sum({a, b}), Sum({b, a}));
}

TEST(TensorSums, OfStepsAreInTheirOrder) {
  const at::Tensor parameter = torch::ones({4});
  StepSums sums({parameter}, at::kCPU, 3);
  std::vector<std::int64_t> expected;
  for (int step = 0; step < 3; ++step) {
    parameter.add_(1);
    expected.push_back(Sum({parameter}));
    sums.Add();
  }
  EXPECT_EQ(sums.Get(3), expected);
  sums.Clear();
  parameter.fill_(9);
  sums.Add();
  EXPECT_THAT(sums.Get(1), ElementsAre(Sum({parameter})));
}

TEST(TensorCopy, TellsWhetherItIsDamaged) {
  const std::vector<at::Tensor> tensors = {torch::randn({100}), torch::randn({3, 3})};
  TensorCopy copy;
  EXPECT_FALSE(copy.IsIntact());
  copy.Keep(tensors, Sum(tensors));
  EXPECT_TRUE(copy.IsIntact());
  const std::vector<at::Tensor> values = {tensors[0].clone(), tensors[1].clone()};
  tensors[0].fill_(0);
  copy.CopyTo(tensors);
  EXPECT_TRUE(torch::equal(tensors[0], values[0]) && torch::equal(tensors[1], values[1]));
  Flip(copy.tensors()[1], 17);
  EXPECT_FALSE(copy.IsIntact());
}

// Not an assertion of speed, which the machine decides: what is measured stands in the output.
TEST(TensorSums, Speed) {
  const at::Tensor tensor = torch::ones({32 << 20});
  Sum({tensor});
  const auto begun = std::chrono::steady_clock::now();
  const std::int64_t sum = Sum({tensor});
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  std::printf("%.1f GB/s\n", static_cast<double>(tensor.nbytes()) / time.count() / 1e9);
  EXPECT_EQ(sum, Sum({tensor.clone()}));
}

}  // namespace
}  // namespace ddprun
