// SPDX-License-Identifier: Apache-2.0
// Random numbers of a step (dropout's) depend on the training's seed, the step and the rank alone:
// a training that goes on elsewhere, or a rank that comes in for another one, draws the same.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace ddprun {

// The default generators of the CPU and of `device`. `step`: that comes next, from 1 on.
void SeedStep(at::Device device, std::uint64_t seed, std::int64_t step, int rank);

}  // namespace ddprun
