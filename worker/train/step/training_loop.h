// SPDX-License-Identifier: Apache-2.0
// The training loop: epochs of steps, each of which is batches, forward, backward with the average
// over ranks, overflows, clipping, the optimizer and the moving average. All that changes from step
// to step (learning rate, scale, batches) lies in the device's memory, and the host never waits for
// it. So on a GPU the whole step can be recorded and replayed (step_recorder.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/models/models.h"
#include "worker/train/optimizer/grad_scaler.h"
#include "worker/train/optimizer/optimizer.h"
#include "worker/train/optimizer/weight_average.h"
#include "worker/train/parallel/cast_weights.h"
#include "worker/train/parallel/parallel_strategy.h"
#include "worker/train/step/batch_feed.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/step_recorder.h"
#include "worker/train/step/training_state.h"

namespace ddprun {

// What the loop trains. All must outlive it.
struct LoopParts {
  World& world;
  ParallelStrategy& strategy;
  Optimizer& optimizer;
  GradScaler& scaler;
  WeightAverage* average = nullptr;  // null: none is kept
  CastWeights* casts = nullptr;      // null: forward casts, or needs no casts
  Observers& observers = NoObservers();
};

class TrainingLoop {
 public:
  TrainingLoop(const Config& config, const LoopParts& parts, std::unique_ptr<BatchFeed> feed,
               std::unique_ptr<StepRecorder> recorder);

  // Trains what is left of the epoch that `state` is in, or less of it if the training is done
  // before. Throws as MakeStep() does, RoundOver, and what an observer throws.
  void TrainEpoch(TrainingState& state, ImageModel& model);

  // Steps are made of this plan's batches from now on; it must live until the next call.
  void BeginEpoch(const EpochPlan& plan);

  // Forward, backward and update with this learning rate. `number` is the step's in the training,
  // from 1 on, or StepRecorder::kDummy. Throws c10::Error if another rank has ended, DataError, and
  // std::runtime_error if the step cannot be captured or an earlier one does not end.
  StepResult MakeStep(const StepBatches& batches, double rate, std::int64_t number);

  StepRecorder& recorder() { return *recorder_; }

 private:
  // `load`: called before each batch with its number.
  StepOutcome ForwardBackwardUpdate(const StepShares& shares,
                                    const std::function<void(std::int64_t)>& load);
  void Update(StepOutcome& outcome);

  const Config& config_;
  const LoopParts parts_;
  const NamedTensors parameters_;
  const std::unique_ptr<BatchFeed> feed_;
  const std::unique_ptr<StepRecorder> recorder_;
  at::Tensor rate_;  // scalar on the device
  const EpochPlan* plan_ = nullptr;
};

}  // namespace ddprun
