// SPDX-License-Identifier: Apache-2.0
// Where ranks wait for each other in collectives, and which ranks differ. Ranks in the same place
// share an entry, so that a world of thousands is a few entries. Pure.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// A new place becomes a new entry, up to kCollectivePlacesMax.
void AddPlace(int rank, const CollectivePlace& place, std::vector<RanksInPlace>& places);

// Adds what another node has reported of its ranks.
void MergePlaces(const std::vector<RanksInPlace>& from, std::vector<RanksInPlace>& places);

// True if b waits for a: in a collective that a has not begun, or that comes after the one that a
// waits in. False also if that is not known.
bool IsBehind(const CollectivePlace& a, const CollectivePlace& b);

// "all_reduce 57", "recv", "the graph of step 57".
std::string NameOf(const Collective& collective);

// "ranks 0-1, 3 wait in all_reduce 57 (4 MiB float32); rank 2 has not begun it: its last was
// all_reduce 56". Empty if no rank waits.
std::string ToSentence(const std::vector<RanksInPlace>& places);

}  // namespace ddprun
