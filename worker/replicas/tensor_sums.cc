// SPDX-License-Identifier: Apache-2.0
#include "worker/replicas/tensor_sums.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <utility>

#include "worker/replicas/word_sum.h"

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

// Of those that are there.
std::uint64_t SumInMemory(const std::vector<at::Tensor>& tensors) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_cpu()) sum += FactorOf(i) * SumInMemory(tensors[i]);
  }
  return sum;
}

}  // namespace

at::Tensor SumByOperations(const at::Tensor& tensor) {
  const at::Tensor values = Flat(tensor);
  return values.view(IntegerOf(values.element_size())).sum(at::kLong);
}

at::Tensor SumOf(const std::vector<at::Tensor>& tensors, at::Device device) {
  const torch::NoGradGuard no_grad;
  at::Tensor sum;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_cpu() || tensors[i].numel() == 0) continue;
    const at::Tensor one =
        SumByOperations(tensors[i]).mul_(static_cast<std::int64_t>(FactorOf(i))).to(device);
    sum = sum.defined() ? sum.add_(one) : one;
  }
  const auto rest = static_cast<std::int64_t>(SumInMemory(tensors));
  if (sum.defined()) return sum.add_(rest);
  return at::full({}, rest, at::TensorOptions(device).dtype(at::kLong));
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
