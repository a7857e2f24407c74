// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/judgement.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ddprun {

Judgement Judge(const std::vector<ReplicaSums>& ranks) {
  using Values = std::pair<std::int64_t, std::int64_t>;
  const auto values_of = [](const ReplicaSums& sums) { return Values(sums.state, sums.steps); };
  std::map<Values, std::int64_t> counts;
  bool finite = true;
  for (const ReplicaSums& sums : ranks) {
    ++counts[values_of(sums)];
    finite = finite && sums.not_finite == 0;
  }
  if (counts.size() <= 1) return {.agree = finite, .alike = !finite};
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto largest = std::max_element(counts.begin(), counts.end(), fewer);
  const auto as_large = std::count_if(counts.begin(), counts.end(), [&](const auto& group) {
    return group.second == largest->second;
  });
  Judgement judgement;
  if (largest->second < 2 || as_large > 1) return judgement;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (values_of(ranks[rank]) != largest->first) judgement.odd.push_back(static_cast<int>(rank));
  }
  return judgement;
}

std::optional<int> FirstToDiffer(const std::vector<std::int64_t>& ranks) {
  const auto first = std::min_element(ranks.begin(), ranks.end());
  if (first == ranks.end() || *first == kNeverDiffered) return std::nullopt;
  if (std::count(ranks.begin(), ranks.end(), *first) > 1) return std::nullopt;
  return static_cast<int>(first - ranks.begin());
}

}  // namespace ddprun
