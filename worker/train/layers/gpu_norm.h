// SPDX-License-Identifier: Apache-2.0
// Batch norm on a GPU, together with what follows it, by the kernels of batch_norm.cu: in training
// x is read twice in forward and twice in backward, activation and shortcut cost no pass of their
// own, and running statistics no operations. Numbers are those of LibTorch's operations but for
// rounding: what they round in between is not rounded here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "worker/library/math/sync_norm.h"
#include "worker/train/layers/fused_norm.h"

namespace ddprun {

// What follows the norm. norm_rows.cuh has the same numbers.
enum class NormTail : int {
  kNone = 0,
  kRelu = 1,
  kAddRelu = 2,  // relu(norm + shortcut)
  kReluAdd = 3,  // relu(norm) + shortcut
  kGelu = 4      // as Python's default: by the error function
};

inline bool HasShortcut(NormTail tail) {
  return tail == NormTail::kAddRelu || tail == NormTail::kReluAdd;
}

// Whether the functions below take them: channels-last images of float, bfloat16 or half where
// there are kernels, and floats in `state`. `shortcut` is not defined without one.
bool CanNormByKernels(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state);

// In training. Increments `batches` (an int64 scalar, num_batches_tracked). With `sum`, mean and
// variance are over all ranks' batches; it is given floating-point tensors, and the host waits for
// none of them. Gradients of weight and bias are this rank's own. With `pool`, for kGelu alone: of
// max_pool2d(x, 2), which CanPoolByKernels() must take.
at::Tensor NormByKernels(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                         const NormState& state, const at::Tensor& batches, const SumOverRanks& sum,
                         bool pool = false);

// x twice, for a block and the shortcut around it. Where x is what a norm with kAddRelu gave, that
// norm's backward adds up the gradients of both by itself; else autograd adds them, in a pass of
// its own.
std::pair<at::Tensor, at::Tensor> Fork(const at::Tensor& x);

// In evaluation: by the running statistics, which stay as they are. Without gradients.
at::Tensor NormByRunningStatistics(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                                   const NormState& state);

}  // namespace ddprun
