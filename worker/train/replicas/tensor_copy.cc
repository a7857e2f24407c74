// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/tensor_copy.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/replicas/tensor_sums.h"

namespace ddprun {
namespace {

void CopyAll(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  const torch::NoGradGuard no_grad;
  const at::TensorList sources = from;
  const at::TensorList targets = to;
  std::size_t first = 0;
  for (std::size_t i = 1; i <= sources.size(); ++i) {
    if (i < sources.size() && sources[i].scalar_type() == sources[first].scalar_type()) continue;
    at::_foreach_copy_(targets.slice(first, i - first), sources.slice(first, i - first),
                       /*non_blocking=*/true);
    first = i;
  }
}

}  // namespace

void TensorCopy::Keep(const std::vector<at::Tensor>& tensors) {
  if (copies_.empty()) {
    for (const at::Tensor& tensor : tensors) copies_.push_back(at::empty_like(tensor.detach()));
  }
  CopyAll(tensors, copies_);
  has_sum_ = false;
}

void TensorCopy::Keep(const std::vector<at::Tensor>& tensors, std::int64_t sum) {
  Keep(tensors);
  sum_ = sum;
  has_sum_ = true;
}

bool TensorCopy::IsIntact() const {
  return has_sum_ && SumOf(copies_, at::kCPU).item<std::int64_t>() == sum_;
}

void TensorCopy::CopyTo(const std::vector<at::Tensor>& tensors) const { CopyAll(copies_, tensors); }

}  // namespace ddprun
