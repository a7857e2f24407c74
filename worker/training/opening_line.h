// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/models/models.h"

namespace ddprun {

// What is about to be trained, in one line: `2 ranks on cpu (gloo); cifar10: 50000 training and
// 10000 test images of 3x32x32, 10 classes; batch 64 per rank, 128 per step; netresdeep: 159594
// parameters`.
std::string OpeningLine(const Config& config, const Dataset& data, const World& world,
                        const ImageModel& model);

}  // namespace ddprun
