// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/worker_outcomes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr int kOtherCode = -1;

int SizeOf(const RankRange& range) { return range.last - range.first + 1; }

WorkerOutcomes& WayFor(EndKind kind, int code, std::vector<WorkerOutcomes>& victims) {
  const auto order = [](const WorkerOutcomes& way, std::pair<EndKind, int> key) {
    return std::pair(way.kind, way.code) < key;
  };
  auto it = std::lower_bound(victims.begin(), victims.end(), std::pair(kind, code), order);
  if (it != victims.end() && it->kind == kind && it->code == code) return *it;
  if (victims.size() + 1 >= kOutcomeWaysMax && code != kOtherCode) {
    return WayFor(EndKind::kExited, kOtherCode, victims);
  }
  return *victims.insert(it, WorkerOutcomes{.kind = kind, .code = code});
}

void Insert(RankRange range, std::vector<RankRange>& ranges) {
  auto it = std::lower_bound(ranges.begin(), ranges.end(), range.first,
                             [](const RankRange& one, int first) { return one.last + 1 < first; });
  while (it != ranges.end() && it->first <= range.last + 1) {
    range = {std::min(range.first, it->first), std::max(range.last, it->last)};
    it = ranges.erase(it);
  }
  if (ranges.size() < kOutcomeRangesMax) ranges.insert(it, range);
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

void AddVictims(EndKind kind, int code, RankRange ranks, std::vector<WorkerOutcomes>& victims) {
  if (ranks.last < ranks.first) return;
  WorkerOutcomes& way = WayFor(kind, code, victims);
  way.count += SizeOf(ranks);
  Insert(ranks, way.ranges);
}

void AddLostNode(const std::string& host, RankRange ranks, std::vector<WorkerOutcomes>& victims) {
  AddVictims(EndKind::kLost, 0, ranks, victims);
  std::vector<std::string>& hosts = WayFor(EndKind::kLost, 0, victims).hosts;
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

std::vector<WorkerOutcomes> ToShow(const std::vector<WorkerOutcomes>& victims, int cause_rank) {
  std::vector<WorkerOutcomes> shown;
  for (WorkerOutcomes way : victims) {
    // Whose node is lost has not ended in another way: it may be the cause and be lost.
    if (way.kind != EndKind::kLost) Remove(cause_rank, way);
    if (way.count <= 0) continue;
    if (way.ranges.size() > kOutcomeRangesShown) way.ranges.resize(kOutcomeRangesShown);
    shown.push_back(std::move(way));
  }
  return shown;
}

std::string WayOf(const WorkerOutcomes& victims) {
  const char* were = victims.count == 1 ? "was" : "were";
  switch (victims.kind) {
    case EndKind::kExited:
      return victims.code == kOtherCode ? "ended in other ways"
                                        : absl::StrCat("exited with code ", victims.code);
    case EndKind::kSignaled:
      return absl::StrCat(were, " killed by ", SignalName(victims.code));
    case EndKind::kNotStarted:
      return "could not be started";
    case EndKind::kLost:
      return absl::StrCat(were, " lost with ", victims.hosts.size() == 1 ? "node " : "nodes ",
                          absl::StrJoin(victims.hosts, ", "),
                          victims.hosts.size() < kOutcomeHostsShown ? "" : ", ...");
    case EndKind::kStopped:
      return absl::StrCat(were, " stopped by ddprun");
    case EndKind::kSucceeded:
      return "had ended well";
  }
  return "";
}

std::string RanksOf(const WorkerOutcomes& victims) {
  int told = 0;
  std::vector<std::string> words;
  for (const RankRange& range : victims.ranges) {
    told += SizeOf(range);
    words.push_back(range.first == range.last ? absl::StrCat(range.first)
                                              : absl::StrCat(range.first, "-", range.last));
  }
  std::string text =
      absl::StrCat(victims.count == 1 ? "rank " : "ranks ", absl::StrJoin(words, ", "));
  if (told < victims.count) absl::StrAppend(&text, " and ", victims.count - told, " others");
  return text;
}

}  // namespace ddprun
