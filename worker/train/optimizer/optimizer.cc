// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/optimizer.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "worker/train/optimizer/by_device.h"

namespace ddprun {
namespace {

// An optimizer for each device on which there are parameters: those of a pipeline's stages in one
// process.
class OptimizerPerDevice : public Optimizer {
 public:
  OptimizerPerDevice(NamedTensors parameters, std::vector<std::unique_ptr<Optimizer>> parts)
      : Optimizer(std::move(parameters)), parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      for (const auto& entry : part->State()) state_.push_back(entry);
    }
  }

  void Step(const at::Tensor& rate, const at::Tensor& skip) override {
    for (const auto& part : parts_) part->StepOnItsDevice(rate, skip);
  }

 private:
  const std::vector<std::unique_ptr<Optimizer>> parts_;
};

}  // namespace

// All elements lie in one block, in the same order in each.
bool SameBlock(const at::Tensor& a, const at::Tensor& b) {
  return a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense() &&
         a.strides() == b.strides();
}

at::Tensor GradientLike(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  if (SameBlock(parameter, gradient)) return gradient;
  return at::empty_like(parameter.detach()).copy_(gradient);
}

std::optional<at::Tensor> IfDefined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

void Optimizer::Step(double rate) {
  if (!parameters_.empty()) Step(RateOn(parameters_[0].second.device(), rate), /*skip=*/{});
}

void Optimizer::StepOnItsDevice(const at::Tensor& rate, const at::Tensor& skip) {
  const at::Device device = parameters_.at(0).second.device();
  Step(rate.to(device), skip.defined() ? skip.to(device) : skip);
}

at::Tensor RateOn(at::Device device, double rate) {
  return at::full({}, rate,
                  at::TensorOptions(device).dtype(device.is_cpu() ? at::kDouble : at::kFloat));
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

Registry<OptimizerFactory>& Optimizers() {
  static Registry<OptimizerFactory> optimizers("--optimizer");
  return optimizers;
}

std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, NamedTensors parameters,
                                         const StepSize& size) {
  const OptimizerFactory& make = Optimizers().Get(config.optimizer);
  std::vector<NamedTensors> parts = ByDevice(parameters);
  if (parts.size() <= 1) return make(config, std::move(parameters), size);
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (NamedTensors& part : parts) optimizers.push_back(make(config, std::move(part), size));
  return std::make_unique<OptimizerPerDevice>(std::move(parameters), std::move(optimizers));
}

}  // namespace ddprun
