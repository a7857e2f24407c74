// SPDX-License-Identifier: Apache-2.0
#include "worker/train/speedrun/whitening.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>

namespace ddprun {
namespace {

// Images whose patches are laid out at a time: 24 MB of CIFAR's.
constexpr std::int64_t kImagesAtATime = 500;

// Relative to the largest eigenvalue; smaller ones are rounding errors.
constexpr double kNothing = 1e-6;

}  // namespace

PatchCovariance::PatchCovariance(std::int64_t channels, std::int64_t kernel)
    : channels_(channels),
      kernel_(kernel),
      sum_(at::zeros({channels * kernel * kernel, channels * kernel * kernel}, at::kDouble)) {}

void PatchCovariance::Add(const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < images.size(0); i += kImagesAtATime) {
    const at::Tensor some = images.narrow(0, i, std::min(kImagesAtATime, images.size(0) - i));
    const at::Tensor patches = some.unfold(2, kernel_, 1)
                                   .unfold(3, kernel_, 1)
                                   .permute({0, 2, 3, 1, 4, 5})
                                   .reshape({-1, sum_.size(0)});
    sum_ += at::mm(patches.t(), patches).to(at::kCPU, at::kDouble);
    patches_ += patches.size(0);
  }
}

at::Tensor PatchCovariance::Filters(double eps) const {
  const torch::NoGradGuard no_grad;
  const auto [eigenvalues, eigenvectors] =
      at::linalg_eigh(sum_ / static_cast<double>(patches_), "U");
  // In ascending order.
  const auto kept = std::max<std::int64_t>(
      1, (eigenvalues > eigenvalues.max() * kNothing).sum().item<std::int64_t>());
  const std::int64_t last = sum_.size(0) - 1;
  const at::Tensor from = last - (last - at::arange(sum_.size(0), at::kLong)).remainder(kept);
  const at::Tensor directions = eigenvectors.t().index_select(0, from);
  const at::Tensor scale = (eigenvalues.index_select(0, from) + eps).rsqrt();
  const at::Tensor filters =
      (directions * scale.unsqueeze(1)).to(at::kFloat).view({-1, channels_, kernel_, kernel_});
  return at::cat({filters, -filters});
}

}  // namespace ddprun
