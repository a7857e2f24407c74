// SPDX-License-Identifier: Apache-2.0
// How many steps a training has, and which of them a position is. Pure.
#pragma once

#include <cstdint>

#include "ddprun/detail/training_position.h"
#include "worker/train/config/config.h"
#include "worker/train/optimizer/schedule.h"
#include "worker/train/step/best_evaluation.h"

namespace ddprun {

// What a checkpoint says of where its training is.
struct TrainingPlace {
  TrainingPosition position;
  bool reached_target = false;
  bool evaluation_due = false;  // the evaluation after this step was interrupted
  BestEvaluation best = {};
};

// In steps of all ranks together, with the current number of ranks and batch size.
struct TrainingPlan {
  std::int64_t steps_per_epoch = 0;
  std::int64_t steps = 0;
  std::int64_t epochs = 0;  // those begun
  // Steps that were made more (or fewer) than as many images take with the number of ranks and the
  // batch size of now, where --max-steps ends the training: it counts steps, whatever their size.
  std::int64_t made_more = 0;
};
// Plan of a training that goes on from `position`.
TrainingPlan MakeTrainingPlan(const Config& config, std::int64_t train_images, int world_size,
                              const TrainingPosition& position = {});

// Where in its plan a training at `position` is: in steps of the number of ranks and the batch
// size of now.
std::int64_t StepInPlan(const Config& config, const TrainingPlan& plan, std::int64_t train_images,
                        int world_size, const TrainingPosition& position);

// Steps that an epoch of `batches` batches takes, or what is left of it.
std::int64_t StepsOf(const Config& config, std::int64_t batches);

Schedule MakeSchedule(const Config& config, const TrainingPlan& plan);

// Steps between two evaluations; 0 for none before the end.
std::int64_t EvaluationInterval(const Config& config, const TrainingPlan& plan);

}  // namespace ddprun
