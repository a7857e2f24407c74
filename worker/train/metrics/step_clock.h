// SPDX-License-Identifier: Apache-2.0
// Measures where a training spends its time: the training thread calls Enter() at the beginning of
// each section. Sections follow each other without a gap, so they add up to the total time.
//
// Times are the host's. On a GPU, where work is only queued, forward, backward and optimizer are
// the time of queueing, and waiting shows where the host waits for the device.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/rank_time.h"

namespace ddprun {

enum class StepSection {
  kOther,  // between steps: reports, set-up
  kData,   // waiting for a batch
  kForward,
  kBackward,
  kGradients,  // backward has computed all gradients; waiting for the other ranks' share of them
  kOptimizer,
  kEvaluation,
  kCheckpoint,
};
inline constexpr std::size_t kSections = 8;

const char* ToString(StepSection section);
// Outside a step one rank may be busy for longer than the others.
inline bool IsWithinStep(StepSection section) {
  return section != StepSection::kEvaluation && section != StepSection::kCheckpoint &&
         section != StepSection::kOther;
}

struct SectionTimes {
  std::array<std::chrono::nanoseconds, kSections> times{};
  std::int64_t steps = 0;

  std::chrono::nanoseconds& operator[](StepSection s) { return times[static_cast<std::size_t>(s)]; }
  std::chrono::nanoseconds operator[](StepSection s) const {
    return times[static_cast<std::size_t>(s)];
  }
  std::chrono::nanoseconds Sum() const;
  // Seconds of each step that went into `s`; 0 without a step.
  double PerStep(StepSection s) const;
  // Share of the whole time, from 0 to 1.
  double Share(StepSection s) const;
};
SectionTimes operator-(const SectionTimes& later, const SectionTimes& earlier);

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  // A trace's; a longer window keeps its beginning.
  static constexpr std::size_t kSpans = 1 << 16;

  struct Span {
    StepSection section = StepSection::kOther;
    std::int64_t step = 0;  // counted from 1
    Clock::time_point start{};
    Clock::time_point end{};
  };

  explicit StepClock(Clock::time_point now = Clock::now()) : since_(now) {}

  // From now on the time is `section`'s. Allocates nothing. May be called on another thread than
  // before if the two do not run at the same time (backward's last callback on a device's thread).
  void Enter(StepSection section, Clock::time_point now = Clock::now());

  // The step is over: what follows is kOther of the next one.
  void EndStep(Clock::time_point now = Clock::now());

  // Up to the latest border.
  const SectionTimes& totals() const { return totals_; }

  // The same as classes of a rank's time: what is kOther before the first step is its start.
  RankTime rank_time() const;
  // The class of the section that it is in.
  TimeClass time_class() const;

  // Called with each section that is entered; before the first Enter() only.
  void OnEnter(std::function<void(StepSection)> listener) { listener_ = std::move(listener); }

  // From here to TakeSpans() each section is remembered with its times.
  void RecordSpans();
  std::vector<Span> TakeSpans();

 private:
  void Close(Clock::time_point now);

  StepSection section_ = StepSection::kOther;
  Clock::time_point since_;
  SectionTimes totals_;
  std::chrono::nanoseconds start_{0};  // of kOther, before the first step
  std::function<void(StepSection)> listener_;
  bool recording_ = false;
  std::vector<Span> spans_;
};

// The table "where the time went", of one rank or of all: times of a step in milliseconds, share of
// the whole, and where there are several ranks the fastest and the slowest one's. Sections without
// time have no row. `ranks` is not empty.
std::string TimeTable(const std::vector<SectionTimes>& ranks);

}  // namespace ddprun
