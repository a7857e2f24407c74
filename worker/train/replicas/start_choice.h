// SPDX-License-Identifier: Apache-2.0
// With whose state the ranks of a new world go on: that of the furthest complete step that one of
// them has. Pure.
#pragma once

#include <vector>

#include "worker/train/step/training_plan.h"

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

// Takes all ranks' states, in rank order; the source is the lowest rank with the furthest place.
// Pure.
RoundStart ChooseStart(const std::vector<RankState>& ranks, int rank);

}  // namespace ddprun
