// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/optimizer/by_device.h"

namespace ddprun {

GradScaler::GradScaler(bool enabled, at::Device device) {
  if (!enabled) return;
  const auto options = at::TensorOptions(device);
  scale_ = at::full({}, kInitialScale, options.dtype(at::kFloat));
  steps_since_growth_ = at::zeros({}, options.dtype(at::kInt));
  overflow_ = at::zeros({}, options.dtype(at::kFloat));
}

GradScaler GradScaler::Fixed(double scale, at::Device device) {
  GradScaler scaler(/*enabled=*/false, device);
  scaler.fixed_scale_ = scale;
  scaler.scale_ = at::full({}, scale, at::TensorOptions(device).dtype(at::kFloat));
  return scaler;
}

const at::Tensor& GradScaler::Unscale(const std::vector<at::Tensor>& gradients) {
  const torch::NoGradGuard no_grad;
  if (!enabled()) {
    if (fixed_scale_ != 1 && !gradients.empty()) at::_foreach_mul_(gradients, 1 / fixed_scale_);
    return overflow_;
  }
  overflow_.zero_();
  const at::Tensor factor = scale_.reciprocal();
  for (const auto& group : ByDevice(gradients)) {
    const at::Device device = group.front().device();
    at::Tensor overflow = overflow_.to(device);  // itself on its own device
    at::_amp_foreach_non_finite_check_and_unscale_(group, overflow, factor.to(device));
    if (device != overflow_.device()) overflow_.copy_(overflow);
  }
  return overflow_;
}

void GradScaler::Update() {
  if (!enabled()) return;
  at::_amp_update_scale_(scale_, steps_since_growth_, overflow_, kGrowth, kBackoff,
                         kGrowthInterval);
}

GradScaler::State GradScaler::state() const {
  if (!enabled()) return {};
  return {scale_.item<double>(), steps_since_growth_.item<std::int64_t>()};
}

NamedTensors GradScaler::Tensors() const {
  if (!enabled()) return {};
  return {{"scale", scale_}, {"steps_since_growth", steps_since_growth_}};
}

void GradScaler::Restore(const State& state) {
  if (!enabled()) return;
  scale_.fill_(state.scale);
  steps_since_growth_.fill_(state.steps_since_growth);
}

}  // namespace ddprun
