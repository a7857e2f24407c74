// SPDX-License-Identifier: Apache-2.0
// Gradients that are too long are made shorter: torch.nn.utils.clip_grad_norm_ with the 2-norm.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun {

// The square of the 2-norm of all gradients together, as a double on the CPU. Waits for the device.
double SquaredNorm(const std::vector<at::Tensor>& gradients);

// Multiplies the gradients with max_norm / (norm + 1e-6) where that is below 1.
void ClipToNorm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);

// Both in one, of which the host hears nothing: returns the norm before, a float scalar on the
// gradients' device, which is not waited for.
at::Tensor ClipOnDevice(const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace ddprun
