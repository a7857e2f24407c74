// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/tensor_copy.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/replicas/tensor_sums.h"

namespace ddprun {

void TensorCopy::Keep(const std::vector<at::Tensor>& tensors, std::int64_t sum) {
  const torch::NoGradGuard no_grad;
  if (copies_.empty()) {
    for (const at::Tensor& tensor : tensors) copies_.push_back(at::empty_like(tensor.detach()));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) copies_[i].copy_(tensors[i].detach());
  sum_ = sum;
  kept_ = true;
}

bool TensorCopy::IsIntact() const {
  return kept_ && SumOf(copies_, at::kCPU).item<std::int64_t>() == sum_;
}

void TensorCopy::CopyTo(const std::vector<at::Tensor>& tensors) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(copies_[i]);
}

}  // namespace ddprun
