// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/training_state.h"

#include <algorithm>

namespace ddprun {

void TrainingState::GoOnFrom(const TrainingPlace& from) {
  place = from;
  plan_ = MakeTrainingPlan(config_, train_images_, ranks_, place.position);
  schedule_ = MakeSchedule(config_, plan_);
  plan_step_ = StepInPlan(config_, plan_, train_images_, ranks_, place.position);
}

EpochPlan TrainingState::BeginEpoch(const Shard& shard) {
  const TrainingPosition& at = place.position;
  EpochPlan epoch({.size = train_images_,
                   .shard = shard,
                   .batch_size = config_.batch_size,
                   .seed = config_.seed,
                   .epoch = static_cast<std::uint64_t>(at.epoch),
                   .consumed = at.consumed});
  // After a change of the number of ranks an epoch may be cut into other steps than the schedule's.
  step_of_epoch_ = plan_.steps_per_epoch - StepsOf(config_, epoch.batches());
  plan_step_ = at.epoch * plan_.steps_per_epoch + step_of_epoch_;
  steps_of_epoch_ = std::min(plan_.steps_per_epoch, plan_.steps - at.epoch * plan_.steps_per_epoch);
  return epoch;
}

void TrainingState::EndStep(const EpochPlan& epoch, std::int64_t last_batch) {
  place.position.consumed = epoch.ConsumedAfter(last_batch);
  ++place.position.step;
  ++plan_step_;
  ++step_of_epoch_;
}

void TrainingState::EndEpochIfConsumed() {
  if (place.position.consumed != train_images_) return;
  ++place.position.epoch;
  place.position.consumed = 0;
}

double TrainingState::PlannedEpochs() const {
  return static_cast<double>(plan_step_) / static_cast<double>(plan_.steps_per_epoch);
}

double TrainingState::EpochsDone() const {
  return static_cast<double>(place.position.epoch) +
         static_cast<double>(place.position.consumed) / static_cast<double>(train_images_);
}

bool TrainingState::EvaluationIsDue() const {
  const std::int64_t interval = EvaluationInterval(config_, plan_);
  return interval != 0 && plan_step_ % interval == 0;
}

bool TrainingState::StepIsLogged() const {
  return step_of_epoch_ % config_.log_every == 0 || step_of_epoch_ == steps_of_epoch_;
}

}  // namespace ddprun
