// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/rank_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun {

void AddRanks(RankRange range, std::size_t ranges_max, std::vector<RankRange>& ranges) {
  auto it = std::lower_bound(ranges.begin(), ranges.end(), range.first,
                             [](const RankRange& one, int first) { return one.last < first - 1; });
  while (it != ranges.end() && it->first - 1 <= range.last) {
    range = {std::min(range.first, it->first), std::max(range.last, it->last)};
    it = ranges.erase(it);
  }
  if (ranges.size() < ranges_max) ranges.insert(it, range);
}

bool Contains(const std::vector<RankRange>& ranges, int rank) {
  return std::any_of(ranges.begin(), ranges.end(), [rank](const RankRange& range) {
    return range.first <= rank && rank <= range.last;
  });
}

std::int64_t CountRanks(const std::vector<RankRange>& ranges) {
  std::int64_t count = 0;
  for (const RankRange& range : ranges) count += std::int64_t{range.last} - range.first + 1;
  return count;
}

std::string RanksText(const std::vector<RankRange>& ranges, std::int64_t count) {
  const auto append = [](std::string* out, const RankRange& range) {
    absl::StrAppend(out, range.first);
    if (range.last != range.first) absl::StrAppend(out, "-", range.last);
  };
  std::string text =
      absl::StrCat(count == 1 ? "rank " : "ranks ", absl::StrJoin(ranges, ", ", append));
  const std::int64_t others = count - CountRanks(ranges);
  if (others > 0) absl::StrAppend(&text, " and ", others, " others");
  return text;
}

}  // namespace ddprun
