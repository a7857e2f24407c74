// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "worker/data/dataset.h"
#include "worker/step/graph_steps.h"
#include "worker/step/train_step.h"

namespace ddprun {

// Whether the whole model is on each rank's GPU: then steps run on a stream of their own, as CUDA
// graphs do.
bool WholeModelOnGpu(const Config& config, const World& world);

// The step that the settings ask for. `graph_steps`, which must outlive it, receives those that
// are graphs of several ranks; `report` one line on how a GPU makes the step.
std::unique_ptr<TrainStep> MakeTrainStep(StepParts parts, const Dataset& data,
                                         GraphSteps& graph_steps,
                                         const std::function<void(const std::string&)>& report);

}  // namespace ddprun
