// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/metrics/console.h"
#include "worker/models/models.h"

namespace ddprun {

// Makes the model that is trained, on the world's device and in its final memory format, and says
// what is about to be trained. Initial weights from a file are rank 0's alone. Throws as
// MakeModel() and LoadInitialWeights() do.
std::shared_ptr<ImageModel> PrepareModel(const Config& config, const Dataset& data, World& world,
                                         Console& console);

}  // namespace ddprun
