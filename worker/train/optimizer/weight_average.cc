// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/weight_average.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/optimizer/by_device.h"

namespace ddprun {

WeightAverage::WeightAverage(NamedTensors parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  for (const auto& [name, parameter] : parameters_) {
    weights_.push_back(parameter.detach());
    averages_.push_back(parameter.detach().clone());
  }
}

void WeightAverage::Update(const at::Tensor& skip) {
  const torch::NoGradGuard no_grad;
  if (!skip.defined()) {
    at::_foreach_lerp_(averages_, weights_, 1 - decay_);
    return;
  }
  const std::vector<at::Tensor> steps = at::_foreach_sub(weights_, averages_);
  const at::Tensor share = (1 - skip) * (1 - decay_);
  for (const auto& group : ByDevice(steps))
    at::_foreach_mul_(group, share.to(group.front().device()));
  at::_foreach_add_(averages_, steps);
}

NamedTensors WeightAverage::State() const {
  NamedTensors state;
  for (std::size_t i = 0; i < averages_.size(); ++i)
    state.emplace_back(parameters_[i].first, averages_[i]);
  return state;
}

void WeightAverage::Swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const at::Tensor weight = weights_[i].clone();
    weights_[i].copy_(averages_[i]);
    averages_[i].copy_(weight);
  }
}

}  // namespace ddprun
