// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/collectives.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/divergence.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

void Add(RankRange range, const CollectivePlace& place, std::vector<RanksInPlace>& places) {
  for (RanksInPlace& known : places) {
    if (known.place == place) return AddRanks(range, kOutcomeRangesShown, known.ranks);
  }
  if (places.size() < kCollectivePlacesMax) places.push_back({{range}, place});
}

std::int64_t CountOf(const RanksInPlace& entry) { return CountRanks(entry.ranks); }

std::string RanksOf(const RanksInPlace& entry) { return RanksText(entry.ranks, CountOf(entry)); }

std::string Size(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 20)
    return absl::StrFormat("%.3g MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return absl::StrFormat("%.3g KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

std::string Describe(const Collective& collective, bool exact = false) {
  std::string text = NameOf(collective);
  if (collective.bytes > 0) {
    absl::StrAppend(&text, " (",
                    exact ? absl::StrCat(collective.bytes, " bytes") : Size(collective.bytes),
                    collective.dtype.empty() ? "" : absl::StrCat(" ", collective.dtype), ")");
  }
  if (!collective.group.empty() && collective.group != kWorldGroup && collective.name != kGraphStep)
    absl::StrAppend(&text, " of group ", collective.group);
  return text;
}

// Where ranks are, compared with those that wait in `common`. Empty: they have no part in it.
std::string Beside(const RanksInPlace& entry, const Collective& common) {
  const bool one = CountOf(entry) == 1;
  const std::string ranks = RanksOf(entry);
  if (entry.place.waits)
    return absl::StrCat(ranks, one ? " waits in " : " wait in ", Describe(*entry.place.waits));
  if (!MayBeIn(common.group, entry.place)) return "";
  const std::string have = one ? " has" : " have";
  if (entry.place.last.empty()) return absl::StrCat(ranks, have, " reported no collective");
  const Collective* last = LastIn(common.group, entry.place);
  if (last == nullptr || last->number == 0)
    return absl::StrCat(ranks, have, " begun none of that group");
  const std::string was = absl::StrCat(one ? "its" : "their", " last was ", NameOf(*last));
  if (common.number == 0) return absl::StrCat(ranks, one ? " does" : " do", " not wait: ", was);
  return last->number < common.number
             ? absl::StrCat(ranks, have, " not begun it: ", was)
             : absl::StrCat(ranks, one ? " is" : " are", " past it: ", was);
}

std::string Called(const std::vector<RankRange>& ranks, const std::string& what) {
  const std::int64_t count = CountRanks(ranks);
  return absl::StrCat(RanksText(ranks, count), count == 1 ? " has" : " have", " called ", what);
}

std::string ToSentence(const Divergence& divergence) {
  const bool exact = Describe(*divergence.called) == Describe(divergence.expected);
  return absl::StrCat(Called(divergence.ranks, Describe(*divergence.called, exact)), " where ",
                      Called(divergence.others, Describe(divergence.expected, exact)));
}

}  // namespace

std::string NameOf(const Collective& collective) {
  if (collective.name == kGraphStep) {
    return collective.number == 0 ? "the graph of a warm-up step"
                                  : absl::StrCat("the graph of step ", collective.number);
  }
  std::string name = collective.name.empty() ? "a collective" : collective.name;
  if (collective.number > 0) absl::StrAppend(&name, " ", collective.number);
  return name;
}

void AddPlace(int rank, const CollectivePlace& place, std::vector<RanksInPlace>& places) {
  Add({rank, rank}, place, places);
}

void MergePlaces(const std::vector<RanksInPlace>& from, std::vector<RanksInPlace>& places) {
  for (const RanksInPlace& entry : from) {
    for (const RankRange& range : entry.ranks) Add(range, entry.place, places);
  }
}

bool IsBehind(const CollectivePlace& a, const CollectivePlace& b) {
  if (!b.waits || b.waits->number == 0) return false;
  if (a.waits)
    return a.waits->group == b.waits->group && a.waits->number > 0 &&
           a.waits->number < b.waits->number;
  if (!MayBeIn(b.waits->group, a)) return false;
  const Collective* last = LastIn(b.waits->group, a);
  return last == nullptr || last->number < b.waits->number;
}

std::string ToSentence(const std::vector<RanksInPlace>& places) {
  const WaitingRanks most = MostWaiting(places);
  if (most.in == nullptr) return "";
  const std::optional<Divergence> divergence = FindDivergence(places);
  if (divergence && divergence->called) return ToSentence(*divergence);
  const Collective& in = divergence ? divergence->expected : *most.in;
  const std::vector<RankRange>& ranks = divergence ? divergence->others : most.ranks;
  const std::int64_t count = CountRanks(ranks);
  std::string text =
      absl::StrCat(RanksText(ranks, count), count == 1 ? " waits in " : " wait in ", Describe(in));
  std::size_t shown = 0;
  const auto add = [&](const RanksInPlace& entry) {
    const std::string beside = Beside(entry, in);
    if (beside.empty() || ++shown > kCollectivePlacesShown) return;
    absl::StrAppend(&text, "; ", beside);
  };
  for (const RanksInPlace& entry : places) {
    if (!entry.place.waits) add(entry);
  }
  for (const RanksInPlace& entry : places) {
    if (entry.place.waits && entry.place.waits != in) add(entry);
  }
  if (shown > kCollectivePlacesShown)
    absl::StrAppend(&text, "; and ", shown - kCollectivePlacesShown, " more, see --verdict-file");
  return text;
}

}  // namespace ddprun
