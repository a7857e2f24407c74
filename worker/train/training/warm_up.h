// SPDX-License-Identifier: Apache-2.0
// Dummy steps and forwards before the first step that counts, of every shape that the training will
// have: libraries are loaded, cuDNN has chosen its kernels, DDP its buckets, and CUDA graphs are
// captured. So no step of the training is slower than the others, and measured times are those of
// training alone, as with Python's compiled peers.
#pragma once

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/step/training_loop.h"
#include "worker/train/step/training_state.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {

// Parameters, buffers, optimizer, scaler and average are afterwards as before, bit by bit. The
// strategy must be in training mode, and is left in it. All ranks must call it.
void WarmUp(const Config& config, const Dataset& data, World& world, TrainingParts& parts,
            TrainingLoop& loop, const TrainingState& state);

}  // namespace ddprun
