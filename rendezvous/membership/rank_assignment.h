// SPDX-License-Identifier: Apache-2.0
// Places and ranks in a round: a part of the membership core.
#pragma once

#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// Members that had a place keep it; the others take the rest in the order of joining, up to the
// run's places. The pointers are into `state`.
std::vector<Member*> ChooseForRound(RunState& state);

// Assigns node ranks to `chosen` and sorts it by them. In a full round members that asked for a
// rank get it, and members that had one keep it; the others take the free ranks, lowest first, in
// the order of joining. A smaller round has only the ranks below its size: members above it move.
void GiveRanks(RunState& state, std::vector<Member*>& chosen);

// Counts the workers of `chosen`, sorted by rank, among those of their role.
void GiveRoleRanks(const std::vector<Member*>& chosen);

}  // namespace ddprun
