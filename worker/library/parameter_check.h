// SPDX-License-Identifier: Apache-2.0
// Whether the ranks train one model: what nobody sees whose gradients were never averaged.
#pragma once

#include <cstdint>

#include "ddprun/world.h"
#include "worker/library/tracked.h"

namespace ddprun {

// All ranks must call it. Throws OwnError, the same on all ranks, if a tracked module's parameters
// have not the same bits on all of them. `step`: after which they are compared.
void CheckParameters(World& world, const Tracked& tracked, std::int64_t step);

}  // namespace ddprun
