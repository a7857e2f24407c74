// SPDX-License-Identifier: Apache-2.0
// What a pipeline stage computes, in the precision of the training; used by stages of ranks and of
// threads.
#pragma once

#include <functional>
#include <vector>

#include "worker/parallel/parallel_strategy.h"
#include "worker/pipeline/stage.h"
#include "worker/pipeline/stage_module.h"

namespace ddprun {

// `module` must outlive the function.
std::function<at::Tensor(const at::Tensor&)> StageForward(StageModule& module, at::Device device,
                                                          const StepOptions& options);

// The mean loss of scores and labels.
std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> StageLoss(
    at::Device device, const StepOptions& options);

StepSection SectionOf(Stage::Activity activity);

// Parameters and buffers, each once.
std::vector<at::Tensor> StateOf(const torch::nn::Module& module);

}  // namespace ddprun
