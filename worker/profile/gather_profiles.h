// SPDX-License-Identifier: Apache-2.0
// Gathers the measurements of all ranks through the process group: the machines need no shared
// folder.
#pragma once

#include <string>
#include <vector>

#include "worker/distributed/world.h"
#include "worker/metrics/step_clock.h"

namespace ddprun {

// Each rank's times, by rank. All ranks must call it.
std::vector<SectionTimes> GatherTimes(World& world, const SectionTimes& own);

// Each rank's bytes on rank 0, by rank; nothing on the others. All ranks must call it. Throws
// std::runtime_error if what arrives is not what was sent.
std::vector<std::string> GatherToRankZero(World& world, const std::string& own);

}  // namespace ddprun
