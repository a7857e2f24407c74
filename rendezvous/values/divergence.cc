// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/divergence.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

// In which all ranks give as many bytes. In others each may give its own.
constexpr std::array<absl::string_view, 9> kOfOneSize = {
    "all_reduce",       "allreduce",       "broadcast",
    "reduce",           "all_gather",      "all_gather_into_tensor",
    "_all_gather_base", "_allgather_base", "reduce_scatter_tensor"};

bool Differ(const Collective& a, const Collective& b) {
  if (a.name.empty() || b.name.empty()) return false;
  if (a.name != b.name) return true;
  if (std::find(kOfOneSize.begin(), kOfOneSize.end(), a.name) == kOfOneSize.end()) return false;
  if (a.bytes < 0 || b.bytes < 0) return false;
  return a.bytes != b.bytes || a.dtype != b.dtype;
}

// What these ranks have called as that number of the group; null: it is not known.
const Collective* CallOf(const CollectivePlace& place, const std::string& group,
                         std::int64_t number) {
  const auto is_it = [&](const Collective& one) {
    return one.group == group && one.number == number;
  };
  if (place.waits && is_it(*place.waits)) return &*place.waits;
  const auto found = std::find_if(place.last.begin(), place.last.end(), is_it);
  return found == place.last.end() ? nullptr : &*found;
}

void AddAll(const std::vector<RankRange>& from, std::vector<RankRange>& to) {
  for (const RankRange& range : from) AddRanks(range, kOutcomeRangesShown, to);
}

struct Callers {
  Collective call;
  std::vector<RankRange> ranks;
};

// By what they have called, the most ranks first. Of as many, those that gave fewer bytes: Gloo
// ends a process that receives more than it has asked for, so ranks that are missing here gave
// fewer too. Else those with the lowest rank.
std::vector<Callers> CallersOf(const std::vector<RanksInPlace>& places, const std::string& group,
                               std::int64_t number) {
  std::vector<Callers> all;
  for (const RanksInPlace& entry : places) {
    const Collective* call = CallOf(entry.place, group, number);
    if (call == nullptr) continue;
    auto same = std::find_if(all.begin(), all.end(),
                             [call](const Callers& one) { return !Differ(one.call, *call); });
    if (same == all.end()) same = all.insert(all.end(), {*call, {}});
    AddAll(entry.ranks, same->ranks);
  }
  std::stable_sort(all.begin(), all.end(), [](const Callers& a, const Callers& b) {
    const std::int64_t of_a = CountRanks(a.ranks);
    const std::int64_t of_b = CountRanks(b.ranks);
    if (of_a != of_b) return of_a > of_b;
    if (a.call.name == b.call.name && a.call.bytes != b.call.bytes)
      return a.call.bytes < b.call.bytes;
    return a.ranks.front().first < b.ranks.front().first;
  });
  return all;
}

std::optional<Divergence> FindOtherCall(const std::vector<RanksInPlace>& places,
                                        const std::string& group) {
  std::set<std::int64_t> numbers;
  for (const RanksInPlace& entry : places) {
    if (entry.place.waits && entry.place.waits->group == group)
      numbers.insert(entry.place.waits->number);
    for (const Collective& done : entry.place.last) {
      if (done.group == group) numbers.insert(done.number);
    }
  }
  numbers.erase(0);  // messages between two ranks have none
  for (const std::int64_t number : numbers) {
    std::vector<Callers> callers = CallersOf(places, group, number);
    if (callers.size() < 2) continue;
    return Divergence{.ranks = std::move(callers[1].ranks),
                      .others = std::move(callers[0].ranks),
                      .expected = std::move(callers[0].call),
                      .called = std::move(callers[1].call)};
  }
  return std::nullopt;
}

// The earliest one that ranks wait in.
std::optional<Divergence> FindNotBegun(const std::vector<RanksInPlace>& places,
                                       const std::string& group) {
  const Collective* first = nullptr;
  const auto waits_here = [&group](const RanksInPlace& entry) {
    return entry.place.waits && entry.place.waits->group == group && entry.place.waits->number > 0;
  };
  for (const RanksInPlace& entry : places) {
    if (waits_here(entry) && (first == nullptr || entry.place.waits->number < first->number))
      first = &*entry.place.waits;
  }
  if (first == nullptr) return std::nullopt;
  Divergence found{.ranks = {}, .others = {}, .expected = *first, .called = {}};
  for (const RanksInPlace& entry : places) {
    if (waits_here(entry)) {
      if (entry.place.waits->number == first->number) AddAll(entry.ranks, found.others);
      continue;
    }
    const bool silent = !entry.place.waits && entry.place.last.empty();
    if (silent || !MayBeIn(group, entry.place)) continue;
    const Collective* last = LastIn(group, entry.place);
    if (last == nullptr || last->number < first->number) AddAll(entry.ranks, found.ranks);
  }
  return found.ranks.empty() ? std::nullopt : std::optional(std::move(found));
}

}  // namespace

WaitingRanks MostWaiting(const std::vector<RanksInPlace>& places) {
  WaitingRanks most;
  for (const RanksInPlace& first : places) {
    if (!first.place.waits) continue;
    WaitingRanks one{&*first.place.waits, {}};
    for (const RanksInPlace& entry : places) {
      if (entry.place.waits == first.place.waits) AddAll(entry.ranks, one.ranks);
    }
    if (most.in == nullptr || CountRanks(one.ranks) > CountRanks(most.ranks)) most = std::move(one);
  }
  return most;
}

const Collective* LastIn(const std::string& group, const CollectivePlace& place) {
  const Collective* last = nullptr;
  for (const Collective& done : place.last) {
    if (done.group == group && (last == nullptr || done.number > last->number)) last = &done;
  }
  return last;
}

bool MayBeIn(const std::string& group, const CollectivePlace& place) {
  return group.empty() || group == kWorldGroup || group == kGraphStep || place.last.empty() ||
         LastIn(group, place) != nullptr;
}

std::optional<Divergence> FindDivergence(const std::vector<RanksInPlace>& places) {
  const WaitingRanks most = MostWaiting(places);
  if (most.in == nullptr || most.in->name == kGraphStep) return std::nullopt;
  if (auto found = FindOtherCall(places, most.in->group)) return found;
  return FindNotBegun(places, most.in->group);
}

}  // namespace ddprun
