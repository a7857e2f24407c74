// SPDX-License-Identifier: Apache-2.0
// Gathers the tensors of all stages on the first, for a model file, a checkpoint or a checksum.
#pragma once

#include "worker/distributed/world.h"
#include "worker/files/state_dict.h"

namespace ddprun {

// On the first rank its own tensors and then the other ranks', rank by rank, on the world's device;
// nothing on the others. All ranks of `pipeline` must call it. Throws c10::Error if one has ended.
NamedTensors GatherOnFirst(World& pipeline, const NamedTensors& own);

}  // namespace ddprun
