// SPDX-License-Identifier: Apache-2.0
// The kernels of a 2x2 max-pool before a batch norm (kernels/max_pool.cu), in the norm's own
// passes (gpu_norm.cc). What it gives is at::max_pool2d(x, 2), bit by bit, which keeps eight bytes
// for each value where this keeps one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

struct Pooled {
  at::Tensor values;
  at::Tensor places;  // uint8, of each value which of its window's four it was
};

// Whether they take the input: channels-last images of at least 2x2 pixels, of a type that has
// kernels, whose channels are a multiple of what 16 bytes hold.
bool CanPoolByKernels(const at::Tensor& x);

// To be filled by LaunchPoolMoments().
Pooled EmptyPooled(const at::Tensor& x);

// Launch shape of both kernels: at most `blocks` blocks, and none without work.
LaunchShape PoolLaunch(const KernelLauncher& launcher, const Pooled& pooled, std::int64_t blocks);

// `partial`: floats, as norm_moments (batch_norm.cu) writes them for as many blocks.
void LaunchPoolMoments(KernelLauncher& launcher, const LaunchShape& shape, const at::Tensor& x,
                       const Pooled& pooled, const at::Tensor& partial);

// What norm_input_gradient gives, past the pool: of height x width images.
at::Tensor PoolInputGradient(KernelLauncher& launcher, const LaunchShape& shape,
                             const Pooled& pooled, const at::Tensor& gradient,
                             const at::Tensor& statistics, const at::Tensor& sums,
                             const at::Tensor& weight, std::int64_t height, std::int64_t width);

}  // namespace ddprun
