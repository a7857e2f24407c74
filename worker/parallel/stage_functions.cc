// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/stage_functions.h"

#include "worker/base/unique_tensors.h"
#include "worker/parallel/precision.h"

namespace ddprun {

std::function<at::Tensor(const at::Tensor&)> StageForward(StageModule& module, at::Device device,
                                                          const StepOptions& options) {
  return [&module, device, type = options.autocast](const at::Tensor& input) {
    const Autocast autocast(device, type);
    return module.forward(input);
  };
}

std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> StageLoss(
    at::Device device, const StepOptions& options) {
  return [device, options](const at::Tensor& scores, const at::Tensor& labels) {
    const Autocast autocast(device, options.autocast);
    const at::Tensor loss = options.loss(scores, labels);
    options.on_scores(scores, labels, loss);
    return loss;
  };
}

StepSection SectionOf(Stage::Activity activity) {
  switch (activity) {
    case Stage::Activity::kForward:
      return StepSection::kForward;
    case Stage::Activity::kBackward:
      return StepSection::kBackward;
    case Stage::Activity::kWaiting:
      return StepSection::kGradients;
  }
  return StepSection::kOther;
}

std::vector<at::Tensor> StateOf(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = UniqueParameters(module);
  for (const at::Tensor& buffer : UniqueBuffers(module)) tensors.push_back(buffer);
  return tensors;
}

}  // namespace ddprun
