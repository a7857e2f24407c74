// SPDX-License-Identifier: Apache-2.0
// Counts the steps of a training, times their sections, and reads and checks their losses.
#pragma once

#include <cstdint>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/step_recorder.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/replica_check.h"

namespace ddprun {

class StepMeter : public Observer {
 public:
  // All must outlive the meter. `kept` has parts.
  StepMeter(const Config& config, World& world, KeptTraining& kept, const TrainingState& state,
            StepRecorder& recorder, ReplicaCheck& replicas);

  // A warm-up of so many seconds is over: the first step takes as long as all that follow.
  void EndWarmUp(double seconds);

  void OnSection(StepSection section) override;
  void OnLoss(const at::Tensor& loss) override;
  void OnStepEnd(const TrainingState& state, const StepResult& result) override;
  // Without an interrupt nothing undoes a step, and the device may be behind.
  void BeforeRead(const TrainingState&) override;

 private:
  void ReadLoss(const at::Tensor& loss, std::int64_t step);

  const Config& config_;
  World& world_;
  KeptTraining& kept_;
  const TrainingState& state_;
  StepRecorder& recorder_;
  ReplicaCheck& replicas_;
  // Whether a step takes as long as all that follow: on a GPU not before libraries have been loaded
  // and kernels chosen, which may take one rank much longer than the others.
  bool settled_;
};

}  // namespace ddprun
