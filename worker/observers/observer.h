// SPDX-License-Identifier: Apache-2.0
// Observers follow a training without changing it: console, metrics, progress, profile, sample log.
// The trainer calls each method of all observers in their order. Only the
// profile and the search for stragglers communicate with other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/evaluation/metric_sums.h"
#include "worker/metrics/step_clock.h"
#include "worker/step/train_step.h"
#include "worker/step/training_state.h"

namespace ddprun {

struct StepEvent {
  const TrainStep::Result& result;
  const TrainStep& step;  // which made it
  double loss = 0;        // the latest that was read from the device
  // Every --log-every steps, and at the end of an epoch: numbers may be read from the device.
  bool is_logged = false;
};

class Observer {
 public:
  virtual ~Observer() = default;

  // The rank has entered a section of a step, or another phase: what a user reads where it hangs.
  // May be called on a thread of backward's while the trainer waits for it.
  virtual void OnSection(StepSection) {}
  virtual void OnPhase(const char*) {}

  // The first step comes next.
  virtual void OnBegin(const TrainingState&) {}
  // The training goes on from an earlier step: what was said of later ones does not count.
  virtual void OnGoBack(const TrainingState&) {}
  virtual void OnStepBegin(const TrainingState&, const EpochPlan&, const StepBatches&) {}
  virtual void OnStepEnd(const TrainingState&, const StepEvent&) {}
  // The training images of `epoch` (counted from 1) as they were trained, over all ranks.
  virtual void OnEpochEnd(const TrainingState&, std::int64_t /*epoch*/, const Evaluation&) {}
  // `last`: after the last step, for the summary.
  virtual void OnEvaluation(const TrainingState&, const Evaluation&, bool /*last*/) {}
  // The last step is made.
  virtual void OnEnd() {}
};

using Observers = std::vector<std::unique_ptr<Observer>>;

}  // namespace ddprun
