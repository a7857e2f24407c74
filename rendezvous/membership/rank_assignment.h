// SPDX-License-Identifier: Apache-2.0
// Who has a place in a round, and which rank: parts of the membership core.
#pragma once

#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// Those who had a place keep it; the others take what is left in the order of joining. No more than
// the run's places. They point into `state`.
std::vector<Member*> ChooseForRound(RunState& state);

// Gives `chosen` their ranks and sorts them by these. In a round with all places those who asked
// for a rank have it, and those who had one keep it; the others take what is free, the lowest
// first, in the order in which they joined. A smaller round has the ranks below its size only:
// whoever is above moves.
void GiveRanks(RunState& state, std::vector<Member*>& chosen);

// Counts the workers of `chosen`, sorted by rank, among those of their role.
void GiveRoleRanks(const std::vector<Member*>& chosen);

}  // namespace ddprun
