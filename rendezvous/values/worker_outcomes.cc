// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/worker_outcomes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

constexpr int kOtherCode = -1;

WorkerOutcomes& WayFor(EndKind kind, int code, std::vector<WorkerOutcomes>& outcomes) {
  const auto order = [](const WorkerOutcomes& way, std::pair<EndKind, int> key) {
    return std::pair(way.kind, way.code) < key;
  };
  auto it = std::lower_bound(outcomes.begin(), outcomes.end(), std::pair(kind, code), order);
  if (it != outcomes.end() && it->kind == kind && it->code == code) return *it;
  if (outcomes.size() + 1 >= kOutcomeWaysMax && code != kOtherCode) {
    return WayFor(EndKind::kExited, kOtherCode, outcomes);
  }
  return *outcomes.insert(it, WorkerOutcomes{.kind = kind, .code = code});
}

void Remove(int rank, WorkerOutcomes& way) {
  for (auto it = way.ranges.begin(); it != way.ranges.end(); ++it) {
    if (rank < it->first || rank > it->last) continue;
    const RankRange whole = *it;
    it = way.ranges.erase(it);
    if (rank < whole.last) it = way.ranges.insert(it, {rank + 1, whole.last});
    if (rank > whole.first) way.ranges.insert(it, {whole.first, rank - 1});
    --way.count;
    return;
  }
}

}  // namespace

void AddOutcome(EndKind kind, int code, RankRange ranks, std::vector<WorkerOutcomes>& outcomes) {
  if (ranks.last < ranks.first) return;
  WorkerOutcomes& way = WayFor(kind, code, outcomes);
  way.count += ranks.last - ranks.first + 1;
  AddRanks(ranks, kOutcomeRangesMax, way.ranges);
}

void AddLostNode(const std::string& host, RankRange ranks, std::vector<WorkerOutcomes>& outcomes) {
  AddOutcome(EndKind::kLost, 0, ranks, outcomes);
  std::vector<std::string>& hosts = WayFor(EndKind::kLost, 0, outcomes).hosts;
  if (hosts.size() < kOutcomeHostsShown) hosts.push_back(host);
}

std::vector<WorkerEnds> Folded(std::vector<WorkerEnds> ends) {
  std::sort(ends.begin(), ends.end(),
            [](const WorkerEnds& a, const WorkerEnds& b) { return a.first < b.first; });
  std::vector<WorkerEnds> folded;
  for (const WorkerEnds& end : ends) {
    if (!folded.empty() && folded.back().kind == end.kind && folded.back().code == end.code &&
        folded.back().first + folded.back().count == end.first) {
      folded.back().count += end.count;
    } else {
      folded.push_back(end);
    }
  }
  return folded;
}

std::vector<WorkerOutcomes> ToShow(const std::vector<WorkerOutcomes>& outcomes, int cause_rank) {
  std::vector<WorkerOutcomes> shown;
  for (WorkerOutcomes way : outcomes) {
    // A worker that is the cause may also be lost with its node; it is then listed as lost.
    if (way.kind != EndKind::kLost) Remove(cause_rank, way);
    if (way.count <= 0) continue;
    if (way.ranges.size() > kOutcomeRangesShown) way.ranges.resize(kOutcomeRangesShown);
    shown.push_back(std::move(way));
  }
  return shown;
}

std::string WayOf(const WorkerOutcomes& outcomes) {
  const char* were = outcomes.count == 1 ? "was" : "were";
  switch (outcomes.kind) {
    case EndKind::kExited:
      return outcomes.code == kOtherCode ? "ended in other ways"
                                         : absl::StrCat("exited with code ", outcomes.code);
    case EndKind::kSignaled:
      return absl::StrCat(were, " killed by ", SignalName(outcomes.code));
    case EndKind::kNotStarted:
      return "could not be started";
    case EndKind::kLost:
      return absl::StrCat(were, " lost with ", outcomes.hosts.size() == 1 ? "node " : "nodes ",
                          absl::StrJoin(outcomes.hosts, ", "),
                          outcomes.hosts.size() < kOutcomeHostsShown ? "" : ", ...");
    case EndKind::kStopped:
      return absl::StrCat(were, " stopped by ddprun");
    case EndKind::kSucceeded:
      return "had succeeded";
  }
  return "";
}

std::string RanksOf(const WorkerOutcomes& outcomes) {
  return RanksText(outcomes.ranges, outcomes.count);
}

}  // namespace ddprun
