// SPDX-License-Identifier: Apache-2.0
#include "worker/training/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/training/muon.h"
#include "worker/training/sgd_kernel.h"

namespace ddprun {
namespace {

// All elements lie in one block, in the same order in each.
bool SameBlock(const at::Tensor& a, const at::Tensor& b) {
  return a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense() &&
         a.strides() == b.strides();
}

bool TakesKernel(const at::Tensor& parameter, const at::Tensor& gradient) {
  return parameter.is_cpu() && parameter.scalar_type() == at::kFloat &&
         gradient.scalar_type() == at::kFloat && SameBlock(parameter, gradient);
}

class Sgd : public Optimizer {
 public:
  Sgd(const Config& config, NamedTensors parameters)
      : Optimizer(std::move(parameters)),
        momentum_(config.momentum),
        weight_decay_(config.weight_decay),
        nesterov_(UsesNesterov(config)) {
    if (momentum_ > 0) velocities_ = MakeState("momentum_buffer");
  }

  void Step(double rate) override {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor parameter = parameters_[i].second;
      const at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      at::Tensor velocity = momentum_ > 0 ? velocities_[i] : at::Tensor();
      if (TakesKernel(parameter, gradient)) {
        SgdStep(parameter.data_ptr<float>(), gradient.const_data_ptr<float>(),
                velocity.defined() ? velocity.data_ptr<float>() : nullptr, parameter.numel(),
                {.rate = static_cast<float>(rate),
                 .momentum = static_cast<float>(momentum_),
                 .weight_decay = static_cast<float>(weight_decay_),
                 .nesterov = nesterov_});
      } else {
        FewPasses(parameter, gradient, velocity, rate);
      }
    }
  }

  void StepOnDevice(const at::Tensor& rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> parameters, gradients, velocities;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(GradientLike(parameter));
      if (momentum_ > 0) velocities.push_back(velocities_[i]);
    }
    if (parameters.empty()) return;
    at::_fused_sgd_(parameters, gradients, velocities, weight_decay_, momentum_, rate,
                    /*dampening=*/0, nesterov_, /*maximize=*/false, /*is_first_step=*/false,
                    /*grad_scale=*/{}, IfDefined(skip));
  }

 private:
  // A velocity begins as zero instead of as the first gradient: 0 * momentum + gradient is the
  // same, bit by bit, and needs no first step to be told apart.
  void FewPasses(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& velocity,
                 double rate) {
    if (parameter.is_cuda() && velocity.defined() && SameBlock(parameter, gradient)) {
      at::_fused_sgd_({parameter}, {gradient}, {velocity}, weight_decay_, momentum_, rate,
                      /*dampening=*/0, nesterov_, /*maximize=*/false, /*is_first_step=*/false);
      return;
    }
    at::Tensor step = weight_decay_ > 0 ? gradient.add(parameter, weight_decay_) : gradient;
    if (velocity.defined()) {
      velocity.mul_(momentum_).add_(step);
      step = nesterov_ ? step.add(velocity, momentum_) : velocity;
    }
    parameter.add_(step, -rate);
  }

  const double momentum_;
  const double weight_decay_;
  const bool nesterov_;
  std::vector<at::Tensor> velocities_;
};

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

  void Step(double rate) override {
    const torch::NoGradGuard no_grad;
    Lists lists = Gather();
    if (lists.parameters.empty()) return;
    at::_foreach_add_(lists.steps, 1);
    Apply(lists, rate);
  }

  void StepOnDevice(const at::Tensor& rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    Lists lists = Gather();
    if (lists.parameters.empty()) return;
    at::_foreach_add_(lists.steps, 1);
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
  void Apply(const Lists& lists, const Rate& rate,
             const std::optional<at::Tensor>& skip = std::nullopt) const {
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

  // Of the parameters that have a gradient.
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

}  // namespace

at::Tensor GradientLike(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  if (SameBlock(parameter, gradient)) return gradient;
  return at::empty_like(parameter.detach()).copy_(gradient);
}

std::optional<at::Tensor> IfDefined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

NamedTensors Optimizer::State() const { return state_; }

std::vector<at::Tensor> Optimizer::MakeState(const std::string& suffix) {
  std::vector<at::Tensor> made;
  for (const auto& [name, parameter] : parameters_) {
    made.push_back(at::zeros_like(parameter.detach()));
    state_.emplace_back(name + "/" + suffix, made.back());
  }
  return made;
}

std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, NamedTensors parameters,
                                         const StepSize& size) {
  if (config.optimizer == "muon") return MakeMuon(config, std::move(parameters), size);
  if (config.optimizer == "adam" || config.optimizer == "adamw")
    return std::make_unique<Adam>(config, std::move(parameters), config.optimizer == "adamw");
  return std::make_unique<Sgd>(config, std::move(parameters));
}

}  // namespace ddprun
