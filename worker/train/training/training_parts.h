// SPDX-License-Identifier: Apache-2.0
// The parts of a training: model, parallel strategy, optimizer, scaler and average.
#pragma once

#include <memory>
#include <optional>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/metrics/console.h"
#include "worker/train/models/models.h"
#include "worker/train/optimizer/grad_scaler.h"
#include "worker/train/optimizer/optimizer.h"
#include "worker/train/optimizer/weight_average.h"
#include "worker/train/parallel/cast_weights.h"
#include "worker/train/parallel/parallel_strategy.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/step/training_loop.h"

namespace ddprun {

// All ranks take the fused kernels or none: each makes the optimizer's step for itself, and the
// kernels round in another way. All ranks of a world must call it, before parts are made or join.
void AgreeOnKernels(World& world, Console& console);

struct TrainingParts {
  // What belongs to a world of ranks, of which a training may have one after the other. All
  // references must be valid until Leave().
  struct Membership {
    World& world;
    Console& console;
    Observers& observers = NoObservers();
    // Values of parameters and buffers are received from another rank, or all ranks have them.
    bool goes_on = false;
    BucketLayout layout = {};  // of the gradients in the world before
  };

  // Makes the model, which becomes rank 0's on all ranks unless it goes on. All must outlive the
  // parts, which stay where they are.
  TrainingParts(const Config& config, const Dataset& data, const Membership& membership);
  TrainingParts(const TrainingParts&) = delete;
  TrainingParts& operator=(const TrainingParts&) = delete;

  // The ranks of this world have ended: model, optimizer state, scale and average stay.
  void Leave();
  // They go on in another one, which may have more or fewer ranks.
  void Join(const Membership& membership);

  // The loop that trains them, see MakeTrainingLoop().
  std::unique_ptr<TrainingLoop> MakeLoop(GraphSteps& graph_steps);

  MetricSums epoch_sums;  // of the epoch's training batches; before the strategy, which adds to it
  std::shared_ptr<ImageModel> model;
  std::unique_ptr<ParallelStrategy> strategy;
  NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;
  std::optional<WeightAverage> average;
  std::optional<CastWeights> casts;  // of mixed precision

  // The parameters were changed, but not by a step.
  void WeightsChanged() {
    if (casts) casts->Refresh();
  }

 private:
  void MakeStrategy(const Membership& membership);
  void MakeOptimizer();

  const Config& config_;
  const Dataset& data_;
  World* world_;  // null between two worlds, as the next
  Console* console_;
  Observers* observers_;
  StepSize step_size_;  // of the optimizer
};

}  // namespace ddprun
