// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/step/training_loop.h"

namespace ddprun {

// Whether the whole model is on each rank's GPU: then steps run on a stream of their own, as CUDA
// graphs do.
bool WholeModelOnGpu(const Config& config, const World& world);

// The loop that the settings ask for; all must outlive it. `graph_steps` receives the steps that
// are graphs of several ranks, the console rank 0's line on how a GPU makes the step.
std::unique_ptr<TrainingLoop> MakeTrainingLoop(const Config& config, const LoopParts& parts,
                                               const Dataset& data, GraphSteps& graph_steps,
                                               Console& console);

}  // namespace ddprun
