// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/gradient_clip.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/optimizer/by_device.h"

namespace ddprun {

// Each gradient's norm is a float, as in PyTorch. Their sum is in doubles: a sum of floats would be
// rounded differently for each way to cut a model into stages.
at::Tensor SquaredNorm(const std::vector<at::Tensor>& gradients, at::Device device) {
  const torch::NoGradGuard no_grad;
  if (gradients.empty()) return at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  std::vector<at::Tensor> parts;
  for (const auto& group : ByDevice(gradients))
    parts.push_back(at::stack(at::_foreach_norm(group)).to(device, at::kDouble));
  const at::Tensor norms = parts.size() == 1 ? parts[0] : at::cat(parts);
  // A GPU's dot goes by cuBLAS and its workspace; a sum can be captured as it is.
  return norms.is_cuda() ? norms.square().sum() : norms.dot(norms);
}

void ClipToNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double max_norm) {
  if (gradients.empty()) return;
  const torch::NoGradGuard no_grad;
  // In floats, as there.
  const at::Tensor own = norm.to(at::kFloat) + 1e-6f;
  const at::Tensor factor = at::full_like(own, max_norm).div_(own);
  if (factor.is_cpu()) {
    if (const float number = factor.item<float>(); !(number >= 1))
      at::_foreach_mul_(gradients, number);
    return;
  }
  const at::Tensor below_one = factor.clamp_max(1);
  for (const auto& group : ByDevice(gradients))
    at::_foreach_mul_(group, below_one.to(group.front().device()));
}

}  // namespace ddprun
