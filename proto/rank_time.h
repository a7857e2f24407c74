// SPDX-License-Identifier: Apache-2.0
// What the time of ranks was spent on. Each moment of each rank is in exactly one class, so that
// the classes add up to the whole: that of a worker is ranks x time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun {

enum class TimeClass {
  kTraining,
  kWaiting,     // for other ranks, in a collective
  kRecovery,    // from the end of a round until a rank is beyond the step where that one ended
  kCheckpoint,  // saving
  kData,        // waiting for a batch
  kEvaluation,
  kStart,  // until the first step
};
inline constexpr std::size_t kTimeClasses = 7;

// "training": as in progress messages, JSON and metrics.
const char* NameOf(TimeClass kind);

struct RankTime {
  using Time = std::chrono::microseconds;
  // The limit of one class: larger values are cut to it, so that those of many nodes can be added.
  static constexpr Time kMax{1'000'000'000'000'000};

  std::array<Time, kTimeClasses> times{};

  Time& operator[](TimeClass kind) { return times[static_cast<std::size_t>(kind)]; }
  const Time& operator[](TimeClass kind) const { return times[static_cast<std::size_t>(kind)]; }
  Time Sum() const;
  RankTime& operator+=(const RankTime& other);
  bool operator==(const RankTime&) const = default;
};

// Calls use(class, its time in seconds) for each class.
template <typename Use>
void ForEachClass(const RankTime& time, Use use) {
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    use(static_cast<TimeClass>(i), std::chrono::duration<double>(time.times[i]).count());
  }
}

// Divides `whole` among the classes in proportion to `shares`, to the last microsecond; all of it
// is `otherwise`'s where there are no shares.
RankTime Divide(RankTime::Time whole, const RankTime& shares, TimeClass otherwise);

// "93.0 % of 1234 rank-seconds: training; recovery 3.1 %, start 2.0 %": the greatest first, without
// those below 0.05 %. Empty: less than a second.
std::string GoodputText(const RankTime& time);

}  // namespace ddprun
