// SPDX-License-Identifier: Apache-2.0
// Runs one training as one rank of a world: from initial parameters, or from where the world before
// came to its end, to the written model.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "ddprun/interrupt.h"
#include "ddprun/world.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/evaluation/metric_sums.h"
#include "worker/evaluation/test_feed.h"
#include "worker/metrics/console.h"
#include "worker/metrics/step_clock.h"
#include "worker/observers/observer.h"
#include "worker/step/graph_steps.h"
#include "worker/step/step_counter.h"
#include "worker/step/train_step.h"
#include "worker/step/training_state.h"
#include "worker/training/kept_training.h"
#include "worker/training/replica_check.h"
#include "worker/training/round_start.h"
#include "worker/training/training_checkpoints.h"
#include "worker/training/training_parts.h"

namespace ddprun {

class Trainer {
 public:
  using Time = std::chrono::steady_clock::time_point;

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
  // From the place where the ranks are, to the end.
  void Train();
  void AwaitSteps();
  // All ranks have the same parameters and optimizer state, or throw ReplicasDiffer. Before
  // anything of them is used elsewhere: an evaluation, a checkpoint, the end of an epoch.
  void CheckReplicas();
  // The ranks differ: makes the steps since they were alike again.
  void GoBack();
  void WarmUp();
  void TrainEpoch();
  // The training images of `epoch`, counted from 1, are consumed.
  void ReportEpoch(std::int64_t epoch);
  // With --skip-damaged, on all ranks.
  void ReportDamaged(std::int64_t epoch);
  // Counts a step and tells the observers.
  void Record(const TrainStep::Result& result);
  // `last`: after the last step, for the summary; else training goes on.
  void Evaluate(bool last);
  std::optional<Evaluation> EvaluateAverage();
  // Exchanges parameters and average, if one is kept.
  void SwapAverage();

  // After the last step: checks, last evaluation, results.
  void Finish();
  void ReadLoss(const at::Tensor& loss, std::int64_t step);
  void Enter(StepSection section);
  template <typename... Parameters, typename... Arguments>
  void Notify(void (Observer::*method)(Parameters...), const Arguments&... arguments) {
    for (const auto& observer : observers_) ((*observer).*method)(arguments...);
  }

  const Config& config_;
  const Dataset& data_;
  World& world_;
  Console& console_;
  KeptTraining& kept_;
  const Interrupt::Registration closing_steps_;
  const RoundStart start_;

  // Whether a step takes as long as all that follow: on a GPU not before libraries have been loaded
  // and kernels chosen, which may take one rank much longer than the others.
  bool settled_;
  bool warming_up_ = false;

  StepClock& clock_;
  StepCounter& counter_;
  const Observers observers_;
  TrainingState state_;
  TrainingParts& parts_;
  ReplicaCheck replicas_;
  TrainingCheckpoints checkpoints_;
  const std::unique_ptr<TrainStep> step_;
  const std::unique_ptr<TestFeed> test_feed_;

  std::optional<Evaluation> evaluation_;  // of the model as it is
  Summary& summary_;
};

}  // namespace ddprun
