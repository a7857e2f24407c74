// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in a collective: who is where, and who is the odd one out. Ranks
// in the same place are kept together, so that a world of thousands is a few entries. Pure.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// A place that nobody is known to be in yet becomes an entry, up to kCollectivePlacesMax.
void AddPlace(int rank, const CollectivePlace& place, std::vector<RanksInPlace>& places);

// What another node has told of its ranks.
void MergePlaces(const std::vector<RanksInPlace>& from, std::vector<RanksInPlace>& places);

// The worker in b waits for the one in a: in a collective that a has not begun, or that comes after
// the one that a waits in. False also where the two do not tell.
bool IsBehind(const CollectivePlace& a, const CollectivePlace& b);

// "ranks 0-1, 3 wait in all_reduce 57 (4 MiB float32); rank 2 has not begun it: its last was
// all_reduce 56". Empty if nobody waits.
std::string ToSentence(const std::vector<RanksInPlace>& places);

}  // namespace ddprun
