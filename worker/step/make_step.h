// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "worker/step/training_step.h"

namespace ddprun {

// Whether this training's steps are the device's alone: on a GPU, with the whole model on each
// rank.
bool IsDeviceStep(const Config& config, const World& world);

// The one that the settings ask for. `say` is told in one line what a GPU does how.
std::unique_ptr<TrainingStep> MakeTrainingStep(
    StepParts parts, const std::function<void(const std::string&)>& report);

}  // namespace ddprun
