// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/cast_weights.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/parallel/precision.h"

namespace ddprun {

CastWeights::CastWeights(const NamedTensors& parameters, at::Device device, at::ScalarType type,
                         Optimizer& optimizer) {
  // The cache is cleared where the outermost scope ends: this one lasts.
  at::autocast::increment_nesting();
  at::autocast::clear_cache();
  const Autocast autocast(device, type);
  const torch::AutoGradMode with_grad(true);
  NamedTensors named;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad() || parameter.scalar_type() != at::kFloat) continue;
    const at::Tensor cast = at::autocast::cached_cast(type, parameter, parameter.device().type());
    parameters_.push_back(parameter.detach());
    casts_.push_back(cast.detach());
    named.emplace_back(name, casts_.back());
  }
  optimizer_writes_ = optimizer.WriteCasts(named);
  changes_ = Changes();
}

CastWeights::~CastWeights() {
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
}

void CastWeights::AfterStep() {
  if (!optimizer_writes_) Refresh();
  changes_ = Changes();
}

void CastWeights::RefreshIfChanged() {
  if (Changes() != changes_) Refresh();
}

void CastWeights::Refresh() {
  const torch::NoGradGuard no_grad;
  if (!casts_.empty()) at::_foreach_copy_(casts_, parameters_);
  changes_ = Changes();
}

std::uint64_t CastWeights::Changes() const {
  std::uint64_t changes = 0;
  for (const at::Tensor& parameter : parameters_)
    changes += static_cast<std::uint64_t>(parameter._version());
  return changes;
}

}  // namespace ddprun
