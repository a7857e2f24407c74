// SPDX-License-Identifier: Apache-2.0
// norm_kernel.h's loops as a function of autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/layers/norm_kernel.h"

namespace ddprun {

// What batch norm learns and keeps; all of C floats.
struct NormState {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;  // moved towards the batch's, in place
  at::Tensor running_variance;
  double momentum = 0;
  double eps = 0;
};

// Whether FusedNorm() takes them: channels-last floats on a CPU.
bool CanFuseNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state);

// Batch norm in training and its tail. `x` is N x C x height x width, `shortcut` the same or
// undefined, as `tail` wants it. Uses ATen's threads.
at::Tensor FusedNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state,
                     norm::Tail tail);

}  // namespace ddprun
