// SPDX-License-Identifier: Apache-2.0
// Which ranks are the odd ones out among those that wait for each other in collectives: they have
// called another one in its place, or have not begun it. Pure.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// c10d's name of the group of all ranks, which sentences omit.
inline constexpr char kWorldGroup[] = "0";

// Ranks that wait in the same collective, whatever else they have done in other groups.
struct WaitingRanks {
  const Collective* in = nullptr;  // null: no rank waits
  std::vector<RankRange> ranks;
};

// The collective in which most ranks wait.
WaitingRanks MostWaiting(const std::vector<RanksInPlace>& places);

// The last that is done of that group; null: none is known.
const Collective* LastIn(const std::string& group, const CollectivePlace& place);

// All ranks are in the world's group; of another one only those that report it are known to be.
bool MayBeIn(const std::string& group, const CollectivePlace& place);

struct Divergence {
  std::vector<RankRange> ranks;
  std::vector<RankRange> others;
  Collective expected;               // what the others have called, or wait in
  std::optional<Collective> called;  // in its place; absent: the ranks have not begun it
};

// The first one, in the process group in which most ranks wait. Absent: there is none, or it cannot
// be told from what the ranks have reported. Of two ranks that differ it is the
// one that gave more bytes, or the higher one.
std::optional<Divergence> FindDivergence(const std::vector<RanksInPlace>& places);

}  // namespace ddprun
