// SPDX-License-Identifier: Apache-2.0
#include "proto/rank_time.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun {
namespace {

constexpr double kShownShareMin = 0.0005;
// In less time most of it is a start and an end.
constexpr double kShownSecondsMin = 1;

}  // namespace

const char* NameOf(TimeClass kind) {
  static constexpr std::array<const char*, kTimeClasses> kNames = {
      "training", "waiting", "recovery", "checkpoint", "data", "evaluation", "start"};
  return kNames[static_cast<std::size_t>(kind)];
}

RankTime::Time RankTime::Sum() const {
  return std::accumulate(times.begin(), times.end(), Time{0});
}

RankTime& RankTime::operator+=(const RankTime& other) {
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    times[i] = std::min(kMax, times[i] + other.times[i]);
  }
  return *this;
}

RankTime Divide(RankTime::Time whole, const RankTime& shares, TimeClass otherwise) {
  RankTime parts;
  const RankTime::Time sum = shares.Sum();
  if (sum.count() <= 0) {
    parts[otherwise] = whole;
    return parts;
  }
  const double scale = static_cast<double>(whole.count()) / static_cast<double>(sum.count());
  RankTime::Time left = whole;
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    const double part = static_cast<double>(shares.times[i].count()) * scale;
    parts.times[i] = std::min(left, RankTime::Time(static_cast<std::int64_t>(part)));
    left -= parts.times[i];
  }
  // What rounding has left over.
  *std::max_element(parts.times.begin(), parts.times.end()) += left;
  return parts;
}

std::string GoodputText(const RankTime& time) {
  const double sum = std::chrono::duration<double>(time.Sum()).count();
  if (sum < kShownSecondsMin) return "";
  std::vector<std::pair<double, TimeClass>> others;
  ForEachClass(time, [&](TimeClass kind, double seconds) {
    if (kind != TimeClass::kTraining && seconds / sum >= kShownShareMin)
      others.emplace_back(seconds / sum, kind);
  });
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const double training = std::chrono::duration<double>(time[TimeClass::kTraining]).count() / sum;
  std::string text = absl::StrFormat("%.1f %% of %.*f rank-seconds: training", 100 * training,
                                     sum < 100 ? 1 : 0, sum);
  for (const auto& [share, kind] : others) {
    absl::StrAppend(&text, &others.front().second == &kind ? "; " : ", ", NameOf(kind), " ",
                    absl::StrFormat("%.1f %%", 100 * share));
  }
  return text;
}

}  // namespace ddprun
