// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/gradient_clip.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace ddprun {

namespace {

// Each gradient's norm is a float, as in PyTorch. Their sum is in doubles: a sum of floats would be
// rounded differently for each way to cut a model into stages.
at::Tensor NormsOf(const std::vector<at::Tensor>& gradients) {
  return at::stack(at::_foreach_norm(gradients)).to(at::kDouble);
}

}  // namespace

double SquaredNorm(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return 0;
  const torch::NoGradGuard no_grad;
  const at::Tensor norms = NormsOf(gradients);
  return norms.dot(norms).item<double>();
}

void ClipToNorm(const std::vector<at::Tensor>& gradients, double norm, double max_norm) {
  // In floats, as there.
  const float factor = static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6f);
  if (factor >= 1) return;
  const torch::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, factor);
}

at::Tensor ClipOnDevice(const std::vector<at::Tensor>& gradients, double max_norm) {
  const torch::NoGradGuard no_grad;
  const at::Tensor norm = at::linalg_vector_norm(NormsOf(gradients)).to(at::kFloat);
  at::_foreach_mul_(gradients, ((norm + 1e-6f).reciprocal() * max_norm).clamp_max(1));
  return norm;
}

}  // namespace ddprun
