// SPDX-License-Identifier: Apache-2.0
// The position of a training in its plan, and what the next step needs.
#pragma once

#include <cstdint>

#include "worker/library/math/epoch_plan.h"
#include "worker/train/config/config.h"
#include "worker/train/step/training_plan.h"

namespace ddprun {

class TrainingState {
 public:
  // `ranks`: of data parallelism.
  TrainingState(const Config& config, std::int64_t train_images, int ranks)
      : config_(config), train_images_(train_images), ranks_(ranks) {
    GoOnFrom({});
  }

  // From the beginning, or where a checkpoint says.
  void GoOnFrom(const TrainingPlace& place);

  bool Done() const {
    return plan_step_ >= plan_.steps || place.reached_target ||
           IsOutOfPatience(config_, place.best);
  }

  // The sampler of the epoch that we are in, from here on. Its steps begin.
  EpochPlan BeginEpoch(const Shard& shard);
  // The step of these batches is made.
  void EndStep(const EpochPlan& epoch, std::int64_t last_batch);
  // After its evaluation: the next step may be of the next epoch.
  void EndEpochIfConsumed();

  const TrainingPosition& position() const { return place.position; }
  const TrainingPlan& plan() const { return plan_; }
  // The step in the schedule: position().step, unless the number of ranks or the batch size has
  // changed since the beginning.
  std::int64_t plan_step() const { return plan_step_; }
  double LearningRate() const { return RateAt(plan_step_); }
  double LatestLearningRate() const { return RateAt(plan_step_ - 1); }
  // Epochs of the plan that are done, and of images.
  double PlannedEpochs() const;
  double EpochsDone() const;
  bool EvaluationIsDue() const;
  // Every --log-every steps, and at the end of an epoch: numbers may be read from the device.
  bool StepIsLogged() const;

  std::int64_t step_of_epoch() const { return step_of_epoch_; }
  std::int64_t steps_of_epoch() const { return steps_of_epoch_; }

  TrainingPlace place;

 private:
  double RateAt(std::int64_t plan_step) const {
    return schedule_.RateAt(plan_step + plan_.made_more);
  }

  const Config& config_;
  const std::int64_t train_images_;
  const int ranks_;
  TrainingPlan plan_;
  Schedule schedule_;
  std::int64_t plan_step_ = 0;
  std::int64_t step_of_epoch_ = 0;
  std::int64_t steps_of_epoch_ = 0;
};

}  // namespace ddprun
