// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/models/models.h"

namespace ddprun {

// Shows the model the training images that its initial parameters depend on, if any: the same on
// every rank. Throws DataError.
void CalibrateOnImages(ImageModel& model, const SampleSet& train, const Config& config);

}  // namespace ddprun
