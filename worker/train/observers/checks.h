// SPDX-License-Identifier: Apache-2.0
// Checks of a training: finite numbers, and the same parameters on all ranks.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ddprun/errors.h"
#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/metrics/console.h"
#include "worker/train/parallel/parallel_strategy.h"

namespace ddprun {

// The training cannot go on: one sentence with what to try.
struct TrainingError : OwnError {
  using OwnError::OwnError;
};

// Throws TrainingError if the loss of step `step` (counted from 1) is not finite.
void CheckFinite(double loss, std::int64_t step, std::int64_t epoch, const Config& config,
                 const World& world);

// A loss is computed before its step's update, so no loss shows what the last update did. Throws
// TrainingError.
void CheckParametersFinite(const ParallelStrategy& strategy, std::int64_t step,
                           const Config& config, const World& world);

// Prints this rank's checksum, and on rank 0 that all are the same. Throws TrainingError on all
// ranks if they differ. All ranks must call it.
void CheckRanksAgree(const ParallelStrategy& strategy, World& world, Console& console);

}  // namespace ddprun
