// SPDX-License-Identifier: Apache-2.0
#include "worker/training/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
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

void GradScaler::Restore(const State& state) {
  if (!enabled_) return;
  scale_ = state.scale;
  steps_since_growth_ = state.steps_since_growth;
}

}  // namespace ddprun
