// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new world go on: they agree on one's state (start_choice.h), which becomes
// every rank's.
#pragma once

#include "ddprun/world.h"
#include "worker/train/replicas/start_choice.h"
#include "worker/train/training/kept_training.h"

namespace ddprun {

// ChooseStart() of what each rank has. All ranks must call it.
RoundStart AgreeOnSource(World& world, const RankState& own);

// All ranks must call it. Where the state is sent, all have the source's words on it afterwards:
// bucket layout, the checkpoints' name.
RoundStart AgreeOnStart(World& world, KeptTraining& kept);

// The source's parameters, buffers, optimizer state, average and scale become every rank's. All
// ranks must call it if `start.sends`. Throws std::runtime_error on a rank that has received other
// values than were sent.
void ReceiveState(World& world, const RoundStart& start, KeptTraining& kept);

}  // namespace ddprun
