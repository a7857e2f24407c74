// SPDX-License-Identifier: Apache-2.0
// torch.optim.SGD without dampening.
#include <ATen/ops/_fused_sgd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/optimizer/optimizer.h"
#include "worker/optimizer/sgd_kernel.h"

namespace ddprun {
namespace {

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

  void Step(const at::Tensor& rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    if (!rate.is_cpu())
      StepOnGpu(rate, skip);
    else if (!skip.defined() || skip.item<float>() == 0)
      StepOnCpu(rate.item<double>());
  }

 private:
  void StepOnCpu(double rate) {
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
        InSeveralPasses(parameter, gradient, velocity, rate);
      }
    }
  }

  // A velocity begins as zero instead of as the first gradient: 0 * momentum + gradient is the
  // same, bit by bit, and needs no first step to be told apart.
  void InSeveralPasses(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& velocity,
                       double rate) {
    at::Tensor step = weight_decay_ > 0 ? gradient.add(parameter, weight_decay_) : gradient;
    if (velocity.defined()) {
      velocity.mul_(momentum_).add_(step);
      step = nesterov_ ? step.add(velocity, momentum_) : velocity;
    }
    parameter.add_(step, -rate);
  }

  void StepOnGpu(const at::Tensor& rate, const at::Tensor& skip) {
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

  const double momentum_;
  const double weight_decay_;
  const bool nesterov_;
  std::vector<at::Tensor> velocities_;
};

std::unique_ptr<Optimizer> MakeSgd(const Config& config, NamedTensors parameters, const StepSize&) {
  return std::make_unique<Sgd>(config, std::move(parameters));
}

const bool kSgdAdded = Optimizers().Add("sgd", MakeSgd);

}  // namespace
}  // namespace ddprun
