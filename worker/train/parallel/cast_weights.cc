// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/cast_weights.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <utility>

#include "worker/train/parallel/precision.h"

namespace ddprun {

class CastWeights::Gradient : public torch::autograd::Node {
 public:
  Gradient(const at::Tensor& parameter, bool gather)
      // The engine runs what has the highest number first: AccumulateGrad has the highest of all.
      : Node(std::numeric_limits<std::uint64_t>::max() - 1,
             {torch::autograd::impl::gradient_edge(parameter)}),
        gather_(gather) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return {at::Tensor()};
    if (!gather_) return {gradient.to(at::kFloat)};
    kept_ = std::move(gradient);
    return {at::Tensor()};
  }
  std::string name() const override { return "ddprun::CastGradient"; }

  at::Tensor Take() { return std::exchange(kept_, {}); }

 private:
  const bool gather_;
  at::Tensor kept_;
};

CastWeights::CastWeights(const NamedTensors& parameters, at::Device device, at::ScalarType type,
                         Optimizer& optimizer, bool gather) {
  // The cache is cleared where the outermost scope ends: this one lasts.
  at::autocast::increment_nesting();
  at::autocast::clear_cache();
  const Autocast autocast(device, type);
  const torch::AutoGradMode with_grad(true);
  NamedTensors named;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad() || parameter.scalar_type() != at::kFloat) continue;
    const at::Tensor cast = at::autocast::cached_cast(type, parameter, parameter.device().type());
    const NodePtr<Gradient> gradient = MakeNode<Gradient>(parameter, gather);
    torch::autograd::set_history(cast, gradient);
    if (gather) gathered_.push_back(gradient);
    parameters_.push_back(parameter);
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

void CastWeights::GatherGradients() {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> fresh;
  std::vector<at::Tensor> from;
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    const at::Tensor gradient = gathered_[i]->Take();
    if (!gradient.defined()) continue;
    at::Tensor& sum = parameters_[i].mutable_grad();
    if (sum.defined()) {
      sum.add_(gradient);
      continue;
    }
    sum = at::empty_like(parameters_[i]);
    // One in another order of memory would make the multi-tensor copy one copy after the other.
    if (gradient.strides() != sum.strides()) {
      sum.copy_(gradient);
      continue;
    }
    fresh.push_back(sum);
    from.push_back(gradient);
  }
  if (!fresh.empty()) at::_foreach_copy_(fresh, from);
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
