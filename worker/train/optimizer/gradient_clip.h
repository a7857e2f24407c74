// SPDX-License-Identifier: Apache-2.0
// Clips gradients to a global 2-norm, as torch.nn.utils.clip_grad_norm_.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun {

// The square of the 2-norm of all gradients together, which may be on several devices: a double
// scalar on `device`, which is not waited for.
at::Tensor SquaredNorm(const std::vector<at::Tensor>& gradients, at::Device device);

// Multiplies the gradients with max_norm / (norm + 1e-6) where that is below 1.
void ClipToNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double max_norm);

}  // namespace ddprun
