// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/metrics/reporter.h"
#include "worker/models/models.h"
#include "worker/parallel/step_runner.h"

namespace ddprun {

// The runner that the settings ask for: data parallelism, stages over ranks, or, for one rank, over
// its devices or threads. Throws UsageError. All ranks must call it; all must outlive the runner.
std::unique_ptr<StepRunner> MakeStepRunner(const Config& config, const Dataset& data, World& world,
                                           ImageModel& model, Reporter& reporter,
                                           StepOptions options);

}  // namespace ddprun
