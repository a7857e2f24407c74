// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/collectives.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

// c10d's name of the group of all ranks, which sentences omit.
constexpr char kWorldGroup[] = "0";

void Add(RankRange range, const CollectivePlace& place, std::vector<RanksInPlace>& places) {
  for (RanksInPlace& known : places) {
    if (known.place == place) return AddRanks(range, kOutcomeRangesShown, known.ranks);
  }
  if (places.size() < kCollectivePlacesMax) places.push_back({{range}, place});
}

std::int64_t CountOf(const RanksInPlace& entry) { return CountRanks(entry.ranks); }

std::string RanksOf(const RanksInPlace& entry) { return RanksText(entry.ranks, CountOf(entry)); }

std::string NameOf(const Collective& collective) {
  if (collective.name == kGraphStep) {
    return collective.number == 0 ? "the graph of a warm-up step"
                                  : absl::StrCat("the graph of step ", collective.number);
  }
  std::string name = collective.name.empty() ? "a collective" : collective.name;
  if (collective.number > 0) absl::StrAppend(&name, " ", collective.number);
  return name;
}

std::string Size(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 20)
    return absl::StrFormat("%.3g MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return absl::StrFormat("%.3g KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
}

std::string Describe(const Collective& collective) {
  std::string text = NameOf(collective);
  if (collective.bytes > 0) {
    absl::StrAppend(&text, " (", Size(collective.bytes),
                    collective.dtype.empty() ? "" : absl::StrCat(" ", collective.dtype), ")");
  }
  if (!collective.group.empty() && collective.group != kWorldGroup && collective.name != kGraphStep)
    absl::StrAppend(&text, " of group ", collective.group);
  return text;
}

const Collective* LastIn(const std::string& group, const CollectivePlace& place) {
  for (const Collective& last : place.last) {
    if (last.group == group) return &last;
  }
  return nullptr;
}

// Where ranks are, compared with those that wait in `common`.
std::string Beside(const RanksInPlace& entry, const Collective& common) {
  const bool one = CountOf(entry) == 1;
  const std::string ranks = RanksOf(entry);
  if (entry.place.waits)
    return absl::StrCat(ranks, one ? " waits in " : " wait in ", Describe(*entry.place.waits));
  const std::string have = one ? " has" : " have";
  if (entry.place.last.empty()) return absl::StrCat(ranks, have, " reported no collective");
  const Collective* last = LastIn(common.group, entry.place);
  if (last == nullptr) return absl::StrCat(ranks, have, " begun none of that group");
  const std::string was = absl::StrCat(one ? "its" : "their", " last was ", NameOf(*last));
  if (common.number == 0) return absl::StrCat(ranks, one ? " does" : " do", " not wait: ", was);
  return last->number < common.number
             ? absl::StrCat(ranks, have, " not begun it: ", was)
             : absl::StrCat(ranks, one ? " is" : " are", " past it: ", was);
}

// The place in which most ranks wait.
const RanksInPlace* MostWaiting(const std::vector<RanksInPlace>& places) {
  const RanksInPlace* most = nullptr;
  for (const RanksInPlace& entry : places) {
    if (entry.place.waits && (most == nullptr || CountOf(entry) > CountOf(*most))) most = &entry;
  }
  return most;
}

}  // namespace

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
  const Collective* last = LastIn(b.waits->group, a);
  return last == nullptr || last->number < b.waits->number;
}

std::string ToSentence(const std::vector<RanksInPlace>& places) {
  const RanksInPlace* common = MostWaiting(places);
  if (common == nullptr) return "";
  std::string text =
      absl::StrCat(RanksOf(*common), CountOf(*common) == 1 ? " waits in " : " wait in ",
                   Describe(*common->place.waits));
  for (const RanksInPlace& entry : places) {
    if (&entry != common) absl::StrAppend(&text, "; ", Beside(entry, *common->place.waits));
  }
  return text;
}

}  // namespace ddprun
