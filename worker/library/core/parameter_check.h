// SPDX-License-Identifier: Apache-2.0
// Whether the ranks train one model: what nobody sees whose gradients were never averaged.
#pragma once

#include <cstdint>
#include <optional>

#include "ddprun/world.h"
#include "worker/library/core/tracked.h"

namespace ddprun {

// After the first step since a training began or went on, when the optimizers' versions were
// `before`. Throws std::logic_error if there are gradients that no optimizer has applied yet. Not
// for one that has left out a step because a gradient was not finite.
void CheckStepMade(const Tracked& tracked, std::optional<std::int64_t> before);

// All ranks must call it. Throws OwnError, the same on all ranks, if a tracked module's parameters
// have not the same bits on all of them. `step`: after which they are compared.
void CheckParameters(World& world, const Tracked& tracked, std::int64_t step);

}  // namespace ddprun
