// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker/observers/observer.h"
#include "worker/progress/progress_sender.h"
#include "worker/step/step_counter.h"

namespace ddprun {

// Sends to the agent which step this rank is at, what it is doing, and how fast it is.
class ProgressObserver : public Observer {
 public:
  // Both must outlive the observer.
  ProgressObserver(ProgressSender& sender, const StepCounter& counter)
      : sender_(sender), counter_(counter) {}

  void OnSection(StepSection section) override;
  void OnPhase(const char* phase) override;
  void OnStepBegin(const TrainingState& state, const EpochPlan& epoch,
                   const StepBatches& batches) override;
  void OnStepEnd(const TrainingState& state, const StepEvent& event) override;

 private:
  ProgressSender& sender_;
  const StepCounter& counter_;
  StepCounter::Counts at_rate_;  // of the rate that was sent last
};

}  // namespace ddprun
