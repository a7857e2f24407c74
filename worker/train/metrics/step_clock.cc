// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/step_clock.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace ddprun {

const char* ToString(StepSection section) {
  static constexpr std::array<const char*, kSections> kNames = {
      "other", "data", "forward", "backward", "gradients", "optimizer", "evaluation", "checkpoint"};
  return kNames[static_cast<std::size_t>(section)];
}

std::chrono::nanoseconds SectionTimes::Sum() const {
  return std::accumulate(times.begin(), times.end(), std::chrono::nanoseconds(0));
}

double SectionTimes::PerStep(StepSection s) const {
  if (steps == 0) return 0;
  return std::chrono::duration<double>((*this)[s]).count() / static_cast<double>(steps);
}

double SectionTimes::Share(StepSection s) const {
  const auto sum = static_cast<double>(Sum().count());
  return sum > 0 ? static_cast<double>((*this)[s].count()) / sum : 0;
}

SectionTimes operator-(const SectionTimes& later, const SectionTimes& earlier) {
  SectionTimes difference;
  for (std::size_t i = 0; i < kSections; ++i) {
    difference.times[i] = later.times[i] - earlier.times[i];
  }
  difference.steps = later.steps - earlier.steps;
  return difference;
}

void StepClock::Enter(StepSection section, Clock::time_point now) {
  Close(now);
  section_ = section;
  if (listener_) listener_(section);
}

TimeClass ClassOf(StepSection section) {
  switch (section) {
    case StepSection::kData:
      return TimeClass::kData;
    case StepSection::kGradients:
      return TimeClass::kWaiting;
    case StepSection::kEvaluation:
      return TimeClass::kEvaluation;
    case StepSection::kCheckpoint:
      return TimeClass::kCheckpoint;
    case StepSection::kOther:
    case StepSection::kForward:
    case StepSection::kBackward:
    case StepSection::kOptimizer:
      return TimeClass::kTraining;
  }
  return TimeClass::kTraining;
}

RankTime StepClock::rank_time() const {
  std::array<std::chrono::nanoseconds, kTimeClasses> times{};
  for (std::size_t i = 0; i < kSections; ++i) {
    times[static_cast<std::size_t>(ClassOf(static_cast<StepSection>(i)))] += totals_.times[i];
  }
  times[static_cast<std::size_t>(TimeClass::kTraining)] -= start_;
  times[static_cast<std::size_t>(TimeClass::kStart)] += start_;
  RankTime time;
  for (std::size_t i = 0; i < kTimeClasses; ++i)
    time.times[i] = std::chrono::duration_cast<RankTime::Time>(times[i]);
  return time;
}

TimeClass StepClock::time_class() const {
  const bool starts = section_ == StepSection::kOther && totals_.steps == 0;
  return starts ? TimeClass::kStart : ClassOf(section_);
}

void StepClock::EndStep(Clock::time_point now) {
  Enter(StepSection::kOther, now);
  ++totals_.steps;
}

void StepClock::Close(Clock::time_point now) {
  totals_[section_] += now - since_;
  if (section_ == StepSection::kOther && totals_.steps == 0) start_ += now - since_;
  if (recording_ && spans_.size() < kSpans) {
    spans_.push_back({section_, totals_.steps + 1, since_, now});
  }
  since_ = now;
}

void StepClock::RecordSpans() {
  recording_ = true;
  spans_.reserve(kSpans);
}

std::vector<StepClock::Span> StepClock::TakeSpans() {
  recording_ = false;
  return std::exchange(spans_, {});
}

std::string TimeTable(const std::vector<SectionTimes>& ranks) {
  static constexpr StepSection kOrder[] = {StepSection::kData,       StepSection::kForward,
                                           StepSection::kBackward,   StepSection::kGradients,
                                           StepSection::kOptimizer,  StepSection::kOther,
                                           StepSection::kEvaluation, StepSection::kCheckpoint};
  SectionTimes all;
  for (const SectionTimes& rank : ranks) {
    for (std::size_t i = 0; i < kSections; ++i) all.times[i] += rank.times[i];
    all.steps += rank.steps;
  }
  const bool several = ranks.size() > 1;
  char line[128];
  std::snprintf(line, sizeof line, "%-12s%10s%8s", "where", "ms a step", "share");
  std::string table = std::string(line) + (several ? "   fastest and slowest rank" : "");
  for (const StepSection section : kOrder) {
    if (all[section].count() == 0) continue;
    std::snprintf(line, sizeof line, "\n%-12s%10.2f%7.1f%%", ToString(section),
                  1e3 * all.PerStep(section), 100 * all.Share(section));
    table += line;
    if (!several) continue;
    const auto [least, most] = std::minmax_element(
        ranks.begin(), ranks.end(), [section](const SectionTimes& a, const SectionTimes& b) {
          return a.PerStep(section) < b.PerStep(section);
        });
    std::snprintf(line, sizeof line, "   %.2f (rank %td) to %.2f (rank %td)",
                  1e3 * least->PerStep(section), least - ranks.begin(),
                  1e3 * most->PerStep(section), most - ranks.begin());
    table += line;
  }
  return table;
}

}  // namespace ddprun
