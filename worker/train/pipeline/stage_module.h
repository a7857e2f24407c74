// SPDX-License-Identifier: Apache-2.0
// Some consecutive parts of a model as a module that has their children and nothing else.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "worker/library/files/state_dict.h"
#include "worker/train/models/models.h"

namespace ddprun {

// The children are the model's own, not copies. The model must outlive it.
class StageModule : public torch::nn::Module {
 public:
  // Parts `first` up to but not including `end`. Throws std::logic_error if a part names a child
  // that the model does not have.
  StageModule(ImageModel& model, std::size_t first, std::size_t end);

  at::Tensor forward(at::Tensor input);

  // Each once, under its name in the whole model.
  const NamedTensors& own_parameters() const { return parameters_; }
  const NamedTensors& own_buffers() const { return buffers_; }

 private:
  std::vector<ModelPart> parts_;
  NamedTensors parameters_;
  NamedTensors buffers_;
};

// One module for each stage, whose first parts `cuts` says. Throws std::logic_error if a parameter
// or buffer of the model belongs to no stage or to two.
std::vector<std::shared_ptr<StageModule>> CutIntoStages(ImageModel& model,
                                                        const std::vector<std::size_t>& cuts);

// Frees the memory of a stage that runs elsewhere. Its tensors keep their names and are empty.
void Release(StageModule& stage);

// Gives the model's tensors of these names those values again, released ones too.
void Restore(torch::nn::Module& model, const NamedTensors& values);

}  // namespace ddprun
