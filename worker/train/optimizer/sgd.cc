// SPDX-License-Identifier: Apache-2.0
// torch.optim.SGD without dampening.
#include <ATen/ops/_fused_sgd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "worker/train/optimizer/fused_sgd.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

// ATen rejects a number beyond the range of floats, which would be infinite there.
double InFloats(double number) {
  const bool beyond = std::abs(number) > std::numeric_limits<float>::max();
  return beyond ? std::copysign(std::numeric_limits<double>::infinity(), number) : number;
}

class Sgd : public Optimizer {
 public:
  Sgd(const Config& config, NamedTensors parameters)
      : Optimizer(std::move(parameters)),
        momentum_(config.momentum),
        weight_decay_(config.weight_decay),
        nesterov_(UsesNesterov(config)),
        kernels_(SgdKernels(parameters_)) {
    if (momentum_ > 0) velocities_ = MakeState("momentum_buffer");
  }

  void Step(const at::Tensor& rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    if (kernels_ != nullptr)
      StepByKernel(rate, skip);
    else if (!rate.is_cpu())
      StepOnGpu(rate, skip);
    else if (!skip.defined() || skip.item<float>() == 0)
      StepOnCpu(rate.item<double>());
  }

  bool WriteCasts(const NamedTensors& casts) override {
    if (kernels_ == nullptr) return false;
    casts_ = {casts.begin(), casts.end()};
    return true;
  }

 private:
  // As torch/optim/sgd.py, _single_tensor_sgd(), with the same roundings, which at::_fused_sgd_ has
  // not. A velocity begins as zero instead of as the first gradient: 0 * momentum + gradient is the
  // same, bit by bit, and needs no first step to be told apart.
  void StepOnCpu(double rate) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor parameter = parameters_[i].second;
      at::Tensor step = parameter.grad();
      if (!step.defined()) continue;
      if (weight_decay_ > 0) step = step.add(parameter, InFloats(weight_decay_));
      if (momentum_ > 0) {
        velocities_[i].mul_(momentum_).add_(step);
        step = nesterov_ ? step.add(velocities_[i], momentum_) : velocities_[i];
      }
      parameter.add_(step, -InFloats(rate));
    }
  }

  void StepByKernel(const at::Tensor& rate, const at::Tensor& skip) const {
    std::vector<FusedSgd::Item> items;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [name, parameter] = parameters_[i];
      if (!parameter.grad().defined()) continue;
      const auto cast = casts_.find(name);
      items.push_back({.parameter = parameter,
                       .gradient = GradientLike(parameter),
                       .velocity = momentum_ > 0 ? velocities_[i] : at::Tensor(),
                       .cast = cast == casts_.end() ? at::Tensor() : cast->second});
    }
    FusedSgd{
        .kernels = *kernels_, .momentum = momentum_, .decay = weight_decay_, .nesterov = nesterov_}
        .Step(items, rate, skip);
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
  KernelLauncher* const kernels_;  // null: the device has none
  std::vector<at::Tensor> velocities_;
  std::map<std::string, at::Tensor> casts_;
};

std::unique_ptr<Optimizer> MakeSgd(const Config& config, NamedTensors parameters, const StepSize&) {
  return std::make_unique<Sgd>(config, std::move(parameters));
}

const bool kSgdAdded = Optimizers().Add("sgd", MakeSgd);

}  // namespace
}  // namespace ddprun
