// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"

namespace ddprun {

// Images a second of a training with these settings by a rank that is alone: of steps after the
// warm-up, which take half a second at least. A model is made for them and forgotten. Nullopt: the
// device has not enough memory. Throws as a training does otherwise.
std::optional<double> StepSpeed(const Config& config, const Dataset& data, World& world);

}  // namespace ddprun
