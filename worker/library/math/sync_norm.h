// SPDX-License-Identifier: Apache-2.0
// Batch norm over the batches of all ranks, by LibTorch's operations: torch.nn.SyncBatchNorm's
// numbers (torch/nn/modules/_functions.py), on CPUs too, where Python has none.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace ddprun {

// Adds up a tensor over all ranks, in place. Called in training by forward and, on autograd's
// thread, by backward, on every rank in the same order.
using SumOverRanks = std::function<void(at::Tensor&)>;

struct SyncNormState {
  at::Tensor weight;  // (C); undefined: ones, as the next: zeros
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_variance;
  at::Tensor batches;  // seen so far: int64, one number
  double momentum = 0;
  double eps = 0;
};

// In training; changes the running statistics. `x`: (N, C, ...), float or less, not empty, whose N
// the ranks may have different. Gradients of weight and bias are this rank's own.
at::Tensor SyncNorm(const at::Tensor& x, const SyncNormState& state, const SumOverRanks& sum);

}  // namespace ddprun
