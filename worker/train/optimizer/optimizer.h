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

#include "worker/library/base/registry.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/config/config.h"

namespace ddprun {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step with the learning rate `rate` (RateOn()), and none where `skip` is 1 (a float scalar
  // on the same device; undefined for 0). A parameter without a gradient keeps its value and state.
  // On a GPU it never waits for the device and does the same at each call, so that a CUDA graph can
  // be captured of it.
  virtual void Step(const at::Tensor& rate, const at::Tensor& skip) = 0;
  void Step(double rate);
  // The same with numbers that may be on another device than the parameters.
  void StepOnItsDevice(const at::Tensor& rate, const at::Tensor& skip);

  // Asks that each step also writes the parameters' values into `casts`, under the parameters'
  // names and of another type. False: this optimizer does not.
  virtual bool WriteCasts(const NamedTensors& casts) {
    static_cast<void>(casts);
    return false;
  }

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

// A scalar for learning rates: a double on a CPU, a float on a GPU, as its kernels want it.
at::Tensor RateOn(at::Device device, double rate);

// As ATen takes what may be left out.
std::optional<at::Tensor> IfDefined(const at::Tensor& tensor);

// What a rate or a length depends on that is set in other units.
struct StepSize {
  std::int64_t steps_per_epoch = 1;
  std::int64_t images = 1;  // of all ranks in a step
  bool operator==(const StepSize&) const = default;
};

// The numbers are `config`'s. `parameters` (each once) must be where they stay: on their device,
// the same for all, and in their memory format.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(
    const Config& config, NamedTensors parameters, const StepSize& size)>;
Registry<OptimizerFactory>& Optimizers();

// The one of `config.optimizer`; one for each device where the parameters are on several. Throws
// std::invalid_argument that lists the names.
std::unique_ptr<Optimizer> MakeOptimizer(const Config& config, NamedTensors parameters,
                                         const StepSize& size = {});

}  // namespace ddprun
