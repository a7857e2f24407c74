// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/start_choice.h"

#include <cstddef>
#include <tuple>

namespace ddprun {
namespace {

// An evaluation that is done is further than one that is due.
auto Order(const RankState& state) {
  return std::tuple(state.has_state, state.place.position.step, !state.place.evaluation_due);
}

bool Lacks(const RankState& state, const RankState& source) {
  return !state.has_state || state.place.position.step != source.place.position.step;
}

}  // namespace

RoundStart ChooseStart(const std::vector<RankState>& ranks, int rank) {
  std::size_t source = 0;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (Order(ranks[i]) > Order(ranks[source])) source = i;
  }
  const RankState& furthest = ranks[source];
  if (!furthest.has_state) return {};
  RoundStart start{.goes_on = true, .source = static_cast<int>(source), .place = furthest.place};
  for (const RankState& one : ranks) start.sends = start.sends || Lacks(one, furthest);
  start.receives = Lacks(ranks[static_cast<std::size_t>(rank)], furthest);
  return start;
}

}  // namespace ddprun
