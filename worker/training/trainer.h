// SPDX-License-Identifier: Apache-2.0
// One training, from initial parameters to the written model, as one of the world's ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/evaluation/evaluate.h"
#include "worker/loader/epoch_plan.h"
#include "worker/loader/sample_log.h"
#include "worker/metrics/console.h"
#include "worker/metrics/step_clock.h"
#include "worker/models/models.h"
#include "worker/optimizer/grad_scaler.h"
#include "worker/optimizer/optimizer.h"
#include "worker/optimizer/weight_average.h"
#include "worker/parallel/parallel_strategy.h"
#include "worker/profile/profiler.h"
#include "worker/progress/progress_sender.h"
#include "worker/step/train_step.h"
#include "worker/training/output_folder.h"
#include "worker/training/scalar_recorder.h"
#include "worker/training/summary.h"
#include "worker/training/training_checkpoints.h"
#include "worker/training/training_plan.h"

namespace ddprun {

// The training cannot go on: one sentence with what to try.
struct TrainingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Trainer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All must outlive the trainer. `program_start` is what the table's total time counts from. Makes
  // the model, which becomes rank 0's on all ranks.
  Trainer(const Config& config, const Dataset& data, World& world, Console& console,
          ProgressSender& progress, Time program_start);

  // Trains, checks that all ranks have the same model, evaluates, and on rank 0 writes the model
  // and the summary and shows the table. Throws TrainingError (a loss that is not finite, ranks
  // that differ), c10::Error (a collective that failed, because another rank has ended), UsageError
  // (a checkpoint of another training), Stopped (by a signal, and it is saved) and
  // std::runtime_error (the model cannot be written, a checkpoint cannot be read).
  void Run();

 private:
  bool Done() const { return plan_step_ >= length_.steps || reached_target_; }
  void Begin();
  void TrainEpoch();
  void EndEpoch(std::int64_t epoch);
  void LookAt(const at::Tensor& loss);
  void AfterStep(const TrainStep::Result& result, std::int64_t step_of_epoch,
                 std::int64_t steps_of_epoch);
  void EvaluateIfDue();
  void EvaluateAndReport();
  void EvaluateAtTheEnd();
  // Nothing if a signal has broken it off.
  std::optional<Evaluation> EvaluateNow();
  TrainingCheckpoints::Place Place() const { return {position_, reached_target_, evaluation_due_}; }
  // Of the step after so many of this training's plan.
  double RateAt(std::int64_t plan_step) const {
    return schedule_.RateAt(plan_step + length_.made_more);
  }

  void Enter(StepSection section);
  void Send(const char* section);
  void TellStep();
  void Report(double loss, std::int64_t step_of_epoch, std::int64_t steps_of_epoch);
  void ShowBar();
  void StartMetrics();
  void ShowProfile();
  double EpochsDone() const;
  void CheckFinite(double loss) const;
  void CheckParametersFinite() const;
  [[noreturn]] void Diverged(const std::string& fact) const;
  void CheckRanksAgree();
  void WriteResults();

  const Config& config_;
  const Dataset& data_;
  World& world_;
  Console& console_;
  ProgressSender& progress_;
  const Time program_start_;
  TrainingPlan length_;  // Begin() says where it begins
  Schedule schedule_;

  StepClock clock_;   // before who enters sections
  MetricSums tally_;  // before the strategy, which adds to it
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<ParallelStrategy> strategy_;
  const NamedTensors parameters_;
  const std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  std::optional<WeightAverage> average_;
  std::optional<TrainingCheckpoints> checkpoints_;
  std::unique_ptr<TrainStep> step_;
  std::optional<SampleLog> sample_log_;

  TrainingPosition position_;
  // Where in the schedule we are: position_.step, unless the number of ranks or the batch size has
  // changed since the beginning.
  std::int64_t plan_step_ = 0;
  bool reached_target_ = false;
  bool evaluation_due_ = false;           // one after the latest step was broken off
  std::optional<Evaluation> evaluation_;  // of the model as it is
  Summary summary_;

  std::int64_t images_ = 0;  // of this rank
  Time training_start_{};
  double loss_ = 0;  // the latest that was looked at
  // Of the rate that was told last.
  Time rate_time_{};
  std::int64_t rate_images_ = 0;
  // Of the latest line.
  Time line_time_{};
  std::int64_t line_images_ = 0;

  std::optional<ScalarRecorder> log_;  // on rank 0
  std::optional<Profiler> profiler_;
  std::optional<double> latest_accuracy_;
  SectionTimes set_up_;  // before the first step
};

}  // namespace ddprun
