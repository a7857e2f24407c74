// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace ddprun {

bool GradScaler::Unscale(const std::vector<at::Tensor>& gradients) const {
  if (!enabled_ || gradients.empty()) return true;
  const torch::NoGradGuard no_grad;
  const auto options = at::TensorOptions(gradients[0].device()).dtype(at::kFloat);
  at::Tensor found_inf = at::zeros({1}, options);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf,
                                                 at::full({1}, 1.0 / scale_, options));
  return found_inf.item<float>() == 0;
}

void GradScaler::Update(bool finite) {
  if (!enabled_) return;
  if (!finite) {
    scale_ *= kBackoff;
    steps_since_growth_ = 0;
  } else if (++steps_since_growth_ == kGrowthInterval) {
    scale_ *= kGrowth;
    steps_since_growth_ = 0;
  }
}

void GradScaler::KeepOn(at::Device device) {
  if (!enabled_) return;
  const auto options = at::TensorOptions(device);
  device_scale_ = at::full({}, scale_, options.dtype(at::kFloat));
  device_steps_since_growth_ = at::full({}, steps_since_growth_, options.dtype(at::kInt));
  found_inf_ = at::zeros({}, options.dtype(at::kFloat));
}

const at::Tensor& GradScaler::UnscaleOnDevice(const std::vector<at::Tensor>& gradients) {
  if (!device_scale_.defined()) return found_inf_;
  const torch::NoGradGuard no_grad;
  found_inf_.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_, device_scale_.reciprocal());
  return found_inf_;
}

void GradScaler::UpdateOnDevice() {
  if (!device_scale_.defined()) return;
  at::_amp_update_scale_(device_scale_, device_steps_since_growth_, found_inf_, kGrowth, kBackoff,
                         kGrowthInterval);
}

GradScaler::State GradScaler::state() const {
  if (!device_scale_.defined()) return {scale_, steps_since_growth_};
  return {device_scale_.item<double>(), device_steps_since_growth_.item<std::int64_t>()};
}

void GradScaler::Restore(const State& state) {
  if (!enabled_) return;
  scale_ = state.scale;
  steps_since_growth_ = state.steps_since_growth;
  if (!device_scale_.defined()) return;
  device_scale_.fill_(scale_);
  device_steps_since_growth_.fill_(steps_since_growth_);
}

}  // namespace ddprun
