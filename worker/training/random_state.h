// SPDX-License-Identifier: Apache-2.0
// The states of LibTorch's random number generators (dropout uses them) of all ranks, for
// checkpoints. All ranks must call these functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/distributed/world.h"

namespace ddprun {

// The states of the device's default generator, or the CPU's, by rank: uint8, world size x bytes,
// on the CPU.
at::Tensor GatherRandomStates(World& world);

// Makes this rank's generator continue from its row.
void RestoreRandomState(const World& world, const at::Tensor& states);

// Where there is no state to continue from: a seed of this place of the training.
void ReseedRandom(const World& world, std::uint64_t seed, std::int64_t step);

}  // namespace ddprun
