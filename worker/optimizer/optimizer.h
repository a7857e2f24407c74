// SPDX-License-Identifier: Apache-2.0
// Optimizers: they apply gradients to parameters, and have a state that a checkpoint can hold. Each
// is a .cc file in this folder that adds itself to Optimizers().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/registry.h"
#include "worker/config/config.h"
#include "worker/files/state_dict.h"

namespace ddprun {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step with this learning rate. A parameter without a gradient is left as it is, its state
  // as well.
  virtual void Step(double rate) = 0;

  // One step of which the host knows nothing: with a rate that lies on the parameters' device (a
  // float scalar), and none where `skip` (another; undefined for 0) is 1. Asks nothing of the
  // device, and does the same whenever it is called, so that a graph can be captured of it.
  // The numbers are those of Step() but for roundings.
  virtual void StepOnDevice(const at::Tensor& rate, const at::Tensor& skip) = 0;

  // What the next step depends on, beside parameters and gradients: "NAME/momentum_buffer", or
  // "NAME/exp_avg", "NAME/exp_avg_sq" and "NAME/step", for the parameter NAME: Python's words. The
  // optimizer's own tensors, not copies; they are there from the beginning, so that values read
  // from a checkpoint can be copied into them.
  NamedTensors State() const;

 protected:
  explicit Optimizer(NamedTensors parameters) : parameters_(std::move(parameters)) {}

  // A tensor of zeros as `like`, under NAME/`suffix` of each parameter.
  std::vector<at::Tensor> MakeState(const std::string& suffix);

  const NamedTensors parameters_;
  NamedTensors state_;
};

// Whether all elements of each lie in one block, in the same order in both.
bool SameBlock(const at::Tensor& a, const at::Tensor& b);

// A parameter's gradient in the order in which the parameter lies in memory, as the kernels that
// take many tensors want it: a copy where it lies in another.
at::Tensor GradientLike(const at::Tensor& parameter);

// As ATen takes what may be left out.
std::optional<at::Tensor> IfDefined(const at::Tensor& tensor);

// What a rate or a length depends on that is set in other units.
struct StepSize {
  std::int64_t steps_per_epoch = 1;
  std::int64_t images = 1;  // of all ranks in a step
};

// The numbers are `config`'s. `parameters` (each once) must be where they stay: on their device and
// in their memory format.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(
    const Config& config, NamedTensors parameters, const StepSize& size)>;
Registry<OptimizerFactory>& Optimizers();

// The one of `config.optimizer`. Throws std::invalid_argument that lists the names.
std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, NamedTensors parameters,
                                         const StepSize& size = {});

}  // namespace ddprun
