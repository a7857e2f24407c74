// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new world go on: they agree on the furthest complete step that one of them
// has, and that one's state becomes every rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/distributed/world.h"
#include "worker/training/kept_training.h"

namespace ddprun {

struct RoundStart {
  // False: no rank has a state. The training begins, or goes on from a checkpoint.
  bool goes_on = false;
  int source = 0;         // the rank that has the state
  bool sends = false;     // some rank lacks it
  bool receives = false;  // this one does
  TrainingPlace place;
};

// What a rank of the new world has.
struct RankState {
  bool has_state = false;
  TrainingPlace place;
};

// Of all ranks' states, in their order: the source is the lowest rank with the furthest place.
// Pure.
RoundStart ChooseStart(const std::vector<RankState>& ranks, int rank);

// ChooseStart() of what each rank has. All ranks must call it.
RoundStart AgreeOnSource(World& world, const RankState& own);

// All ranks must call it. Where the state is sent, all have the source's words on it afterwards:
// bucket layout, the checkpoints' name, the best accuracy.
RoundStart AgreeOnStart(World& world, KeptTraining& kept);

// The source's parameters, buffers, optimizer state, average and scale become every rank's. All
// ranks must call it if `start.sends`. Throws std::runtime_error on a rank that has received other
// values than were sent.
void ReceiveState(const Config& config, World& world, const RoundStart& start, KeptTraining& kept);

}  // namespace ddprun
