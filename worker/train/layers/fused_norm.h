// SPDX-License-Identifier: Apache-2.0
// Batch norm in training together with ReLU and a shortcut, on CPUs: fewer passes over the
// activations than one operation after the other makes, and less kept for backward. The roundings
// are those of ATen's batch_norm, relu, add and their backwards
// (aten/src/ATen/native/cpu/batch_norm_kernel.cpp), so the results are the same bits; but from
// LibTorch 2.13 on the gradient of x in channels after the last multiple of eight, which has one
// rounding more there.
//
// For NetResDeep alone, whose activations are large and whose convolutions are small. Of the
// processor time of a ResNet-18's step convolutions are 86 %, and batch norm, ReLU and the shortcut
// together 9 %, of which one pass less would save a third at most.
#pragma once

#include <ATen/core/Tensor.h>

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

// Whether NormReluAdd() takes them: channels-last floats on a CPU.
bool CanFuseNorm(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state);

// relu(batch_norm(x)) + shortcut, both N x C x height x width. Uses ATen's threads.
at::Tensor NormReluAdd(const at::Tensor& x, const at::Tensor& shortcut, const NormState& state);

}  // namespace ddprun
