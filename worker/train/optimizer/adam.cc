// SPDX-License-Identifier: Apache-2.0
// torch.optim.Adam and AdamW without amsgrad.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

// With `decoupled` weight decay AdamW, else Adam, which adds the decay to the gradient.
class Adam : public Optimizer {
 public:
  Adam(const Config& config, NamedTensors parameters, bool decoupled)
      : Optimizer(std::move(parameters)),
        decoupled_(decoupled),
        beta1_(config.beta1),
        beta2_(config.beta2),
        eps_(config.adam_eps),
        weight_decay_(config.weight_decay),
        means_(MakeState("exp_avg")),
        squares_(MakeState("exp_avg_sq")) {
    for (const auto& [name, parameter] : parameters_) {
      steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
      state_.emplace_back(name + "/step", steps_.back());
    }
  }

  void Step(const at::Tensor& rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    Lists lists = Gather();
    if (lists.parameters.empty()) return;
    at::_foreach_add_(lists.steps, 1);
    if (rate.is_cpu())
      Apply(lists, rate.item<double>(), IfDefined(skip));
    else
      Apply(lists, rate, IfDefined(skip));
    // A step that was left out is not counted.
    if (skip.defined())
      at::_foreach_sub_(lists.steps, std::vector<at::Tensor>(lists.steps.size(), skip));
  }

 private:
  struct Lists {
    std::vector<at::Tensor> parameters, gradients, means, squares, steps;
  };

  // `rate` is a number or a tensor.
  template <typename Rate>
  void Apply(const Lists& lists, const Rate& rate, const std::optional<at::Tensor>& skip) const {
    const auto fused = [&](auto&& step) {
      step(lists.parameters, lists.gradients, lists.means, lists.squares, at::TensorList{},
           lists.steps, rate, beta1_, beta2_, weight_decay_, eps_, /*amsgrad=*/false,
           /*maximize=*/false, /*grad_scale=*/std::optional<at::Tensor>{}, skip);
    };
    if (decoupled_)
      fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    else
      fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }

  // For the parameters that have a gradient.
  Lists Gather() const {
    Lists lists;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      lists.parameters.push_back(parameter);
      lists.gradients.push_back(GradientLike(parameter));
      lists.means.push_back(means_[i]);
      lists.squares.push_back(squares_[i]);
      lists.steps.push_back(steps_[i]);
    }
    return lists;
  }

  const bool decoupled_;
  const double beta1_;
  const double beta2_;
  const double eps_;
  const double weight_decay_;
  const std::vector<at::Tensor> means_;
  const std::vector<at::Tensor> squares_;
  std::vector<at::Tensor> steps_;  // Python counts for each parameter
};

template <bool kDecoupled>
std::unique_ptr<Optimizer> MakeAdam(const Config& config, NamedTensors parameters,
                                    const StepSize&) {
  return std::make_unique<Adam>(config, std::move(parameters), kDecoupled);
}

const bool kAdamAdded =
    Optimizers().Add("adam", MakeAdam<false>) && Optimizers().Add("adamw", MakeAdam<true>);

}  // namespace
}  // namespace ddprun
