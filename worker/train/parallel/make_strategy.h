// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/models/models.h"
#include "worker/train/parallel/parallel_strategy.h"

namespace ddprun {

// The strategy that the settings ask for: data parallelism, stages over ranks, or, for one rank,
// over its devices or threads. Throws UsageError. All ranks must call it; all must outlive the
// strategy.
std::unique_ptr<ParallelStrategy> MakeParallelStrategy(const Config& config, const Dataset& data,
                                                       World& world, ImageModel& model,
                                                       Console& console, StepOptions options);

}  // namespace ddprun
