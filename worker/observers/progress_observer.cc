// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/progress_observer.h"

#include <chrono>

namespace ddprun {
namespace {

// Short enough to be the current rate, long enough for a few steps.
constexpr std::chrono::seconds kRateInterval{1};

// The words that a user reads beside a rank that hangs. A collective's say that it waits for
// others.
const char* WordsOf(StepSection section) {
  switch (section) {
    case StepSection::kData:
      return "data";
    case StepSection::kForward:
      return "forward";
    case StepSection::kBackward:
      return "backward, all_reduce";
    case StepSection::kGradients:
      return "all_reduce";
    case StepSection::kOptimizer:
      return "optimizer";
    case StepSection::kEvaluation:
      return "evaluate";
    case StepSection::kCheckpoint:
      return "checkpoint";
    case StepSection::kOther:
      return "other";
  }
  return "other";
}

}  // namespace

void ProgressObserver::OnSection(StepSection section) { OnPhase(WordsOf(section)); }

void ProgressObserver::OnPhase(const char* phase) {
  ProgressMessage message;
  message.section = phase;
  sender_.Send(message);
}

void ProgressObserver::OnStepBegin(const TrainingState& state, const EpochPlan&,
                                   const StepBatches&) {
  ProgressMessage message;
  message.step = state.position().step + 1;
  message.epoch = state.position().epoch + 1;
  message.section = WordsOf(StepSection::kData);
  const StepCounter::Counts now = counter_.Now();
  const StepCounter::Counts since = now - at_rate_;
  if (since.time >= kRateInterval) {
    message.rate = since.own_images_per_second();
    message.unit = "images";
    at_rate_ = now;
  }
  sender_.Send(message);
}

void ProgressObserver::OnStepEnd(const TrainingState&, const StepEvent&) {
  OnSection(StepSection::kOther);
}

}  // namespace ddprun
