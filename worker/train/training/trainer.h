// SPDX-License-Identifier: Apache-2.0
// Runs one training as one rank of a world: from initial parameters, or from where the world before
// came to its end, to the written model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddprun/detail/interrupt.h"
#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/training_loop.h"
#include "worker/train/step/training_state.h"
#include "worker/train/training/evaluations.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/replica_check.h"
#include "worker/train/training/round_start.h"
#include "worker/train/training/step_meter.h"
#include "worker/train/training/training_checkpoints.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {

class Trainer {
 public:
  // All must outlive the trainer. `graph_steps` is where a stall reporter reads at which step the
  // device is. Where no rank has kept anything, makes the model, which becomes rank 0's on all
  // ranks; else all ranks have the state of the furthest one.
  Trainer(const Config& config, const Dataset& data, World& world, Console& console,
          GraphSteps& graph_steps, KeptTraining& kept);

  // Trains, checks that all ranks have the same model, evaluates, and on rank 0 writes the model
  // and the summary and shows the table. Throws TrainingError (a loss that is not finite, ranks
  // that differ), c10::Error (a collective that failed, because another rank has ended), UsageError
  // (a checkpoint of another training), Stopped (by a signal, and it is saved), RoundOver (the
  // world has ended) and std::runtime_error (the model cannot be written, a checkpoint cannot be
  // read).
  void Run();

  // Instead of Run(), where a signal has asked for the end meanwhile and a state was kept: saves it
  // and throws Stopped.
  [[noreturn]] void Stop(int signal);

  // After Run() has thrown because the world has ended: where the kept training is. Keeps up to the
  // latest complete step, or on a GPU the latest that was queued.
  TrainingPlace PlaceAtEnd();

  // After Run() has thrown: waits for a save that is under way, unless the device does not let it
  // be read.
  void AwaitSave() { checkpoints_.AwaitSave(); }

 private:
  // To the first step: resumes, warms up, and waits for the other ranks; or goes on.
  void Begin();
  void BeginAnew();
  void GoOn();
  void WarmUp();
  // From the place where the ranks are, to the end.
  void Train();
  // The ranks differ: makes the steps since they were alike again.
  void GoBack();
  // The training images of `epoch`, counted from 1, are consumed.
  void ReportEpoch(std::int64_t epoch);
  // After the last step: checks, last evaluation, results.
  void Finish();

  const Config& config_;
  const Dataset& data_;
  World& world_;
  Console& console_;
  KeptTraining& kept_;
  const Interrupt::Registration closing_steps_;
  const RoundStart start_;

  Observers observers_;
  TrainingState state_;
  TrainingParts& parts_;
  const std::unique_ptr<TrainingLoop> loop_;
  // The observers, in the order in which events come to them.
  KeepingObserver keeping_;
  ReplicaCheck replicas_;
  TrainingCheckpoints checkpoints_;
  StepMeter meter_;
  const std::vector<std::unique_ptr<Observer>> shown_;
  Evaluations evaluations_;
};

}  // namespace ddprun
