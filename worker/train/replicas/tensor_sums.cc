// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/tensor_sums.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "worker/train/kernels/kernels.h"
#include "worker/train/kernels/summed_memory.cuh"
#include "worker/train/replicas/word_sum.h"

namespace ddprun {
namespace {

// Odd, so that multiplying with it loses no bit; another for each tensor, so that two that are
// exchanged are noticed.
std::uint64_t FactorOf(std::size_t tensor) { return (tensor * 0x9e3779b97f4a7c15U) | 1U; }

// The tensor's memory as one row.
at::Tensor Flat(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  if (!values.is_non_overlapping_and_dense()) return values.reshape({-1});
  return values.as_strided({values.numel()}, {1}, values.storage_offset());
}

at::ScalarType IntegerOf(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

std::uint64_t SumInMemory(const at::Tensor& tensor) {
  // Without a view of it, which takes longer than to read a small tensor.
  const at::Tensor values =
      tensor.is_non_overlapping_and_dense() ? tensor : tensor.detach().contiguous();
  return WordSum(values.const_data_ptr(), values.nbytes());
}

std::uint64_t SumInMemory(const std::vector<at::Tensor>& tensors) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) sum += FactorOf(i) * SumInMemory(tensors[i]);
  return sum;
}

at::Tensor SumEach(const std::vector<at::Tensor>& tensors, at::Device device) {
  at::Tensor sum = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sum.add_(SumByOperations(tensors[i]).mul_(static_cast<std::int64_t>(FactorOf(i))).to(device));
  }
  return sum;
}

template <typename T>
KernelArgument Argument(const T& value) {
  return {.value = &value, .size = sizeof(value)};
}

}  // namespace

at::Tensor SumByOperations(const at::Tensor& tensor) {
  const at::Tensor values = Flat(tensor);
  return values.view(IntegerOf(values.element_size())).sum(at::kLong);
}

at::Tensor SumByKernel(KernelLauncher& kernels, const std::vector<at::Tensor>& tensors) {
  const auto blocks_of = [](const at::Tensor& tensor) {
    return (static_cast<std::int64_t>(tensor.nbytes()) + device::kSummedChunk - 1) /
           device::kSummedChunk;
  };
  std::vector<at::Tensor> dense;  // until the kernels are queued
  std::int64_t blocks = 0;
  for (const at::Tensor& tensor : tensors) {
    dense.push_back(Flat(tensor));
    blocks += blocks_of(tensor);
  }
  const at::Tensor sums = at::empty({blocks}, tensors.at(0).options().dtype(at::kLong));
  auto* to = reinterpret_cast<unsigned long long*>(sums.mutable_data_ptr<std::int64_t>());
  for (std::size_t begin = 0; begin < dense.size(); begin += device::kSummedMax) {
    const std::size_t end =
        std::min(dense.size(), begin + static_cast<std::size_t>(device::kSummedMax));
    device::SummedMemories memories{};
    int launched = 0;
    for (std::size_t i = begin; i < end; ++i) {
      launched += static_cast<int>(blocks_of(dense[i]));
      memories.part[i - begin] = {
          .memory = static_cast<const unsigned char*>(dense[i].const_data_ptr()),
          .bytes = static_cast<long long>(dense[i].nbytes()),
          .factor = FactorOf(i)};
      memories.block_end[i - begin] = launched;
    }
    const std::array arguments{Argument(memories), Argument(to)};
    if (launched == 0) continue;
    kernels.Launch("sum_words",
                   {.blocks = static_cast<unsigned>(launched), .threads = device::kSummedThreads},
                   arguments);
    to += launched;
  }
  return sums.sum();
}

at::Tensor SumOf(const std::vector<at::Tensor>& tensors, at::Device device) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> in_memory;
  std::vector<at::Tensor> others;
  bool all_there = true;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    (tensor.is_cpu() ? in_memory : others).push_back(tensor);
    all_there &= tensor.is_cpu() || tensor.device() == device;
  }
  const auto rest = static_cast<std::int64_t>(SumInMemory(in_memory));
  if (others.empty()) return at::full({}, rest, at::TensorOptions(device).dtype(at::kLong));
  KernelLauncher* const kernels = all_there ? KernelsFor(device) : nullptr;
  const at::Tensor sum =
      kernels != nullptr ? SumByKernel(*kernels, others) : SumEach(others, device);
  return sum.add_(rest);
}

StepSums::StepSums(std::vector<at::Tensor> tensors, at::Device device, std::int64_t steps)
    : tensors_(std::move(tensors)),
      device_(device),
      sums_(at::zeros({steps}, at::TensorOptions(device).dtype(at::kLong))),
      next_(at::zeros({1}, at::TensorOptions(device).dtype(at::kLong))) {}

void StepSums::Add() {
  const torch::NoGradGuard no_grad;
  at::Tensor sums = sums_;
  at::Tensor next = next_;
  if (device_.is_cpu()) {
    // A few operations take longer than to read a small model.
    auto& i = *next.data_ptr<std::int64_t>();
    sums.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(SumInMemory(tensors_));
    i = (i + 1) % sums.numel();
    return;
  }
  sums.index_copy_(0, next, SumOf(tensors_, device_).view({1}));
  // Warm-up makes more steps than are asked for.
  next.add_(1).remainder_(sums.numel());
}

void StepSums::Clear() { at::Tensor(next_).zero_(); }

std::vector<std::int64_t> StepSums::Get(std::int64_t count) const {
  const at::Tensor sums = sums_.narrow(0, 0, std::min(count, sums_.numel())).cpu();
  const auto* const first = sums.const_data_ptr<std::int64_t>();
  return {first, first + sums.numel()};
}

}  // namespace ddprun
