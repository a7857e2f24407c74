// SPDX-License-Identifier: Apache-2.0
// Sets of ranks as ranges, sorted and apart, so that those of a large world are few. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// A range that would be one more than `ranges_max` is dropped.
void AddRanks(RankRange range, std::size_t ranges_max, std::vector<RankRange>& ranges);

bool Contains(const std::vector<RankRange>& ranges, int rank);

std::int64_t CountRanks(const std::vector<RankRange>& ranges);

// "rank 3", "ranks 0-2, 5", and where `count` is more than the ranges have: "ranks 0-2, 5 and 12
// others".
std::string RanksText(const std::vector<RankRange>& ranges, std::int64_t count);

}  // namespace ddprun
