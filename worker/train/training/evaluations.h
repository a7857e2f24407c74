// SPDX-License-Identifier: Apache-2.0
// The evaluations of a training: those that are due after a step, and the last one.
#pragma once

#include <memory>
#include <optional>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/evaluation/test_feed.h"
#include "worker/train/metrics/console.h"
#include "worker/train/step/observer.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/training_checkpoints.h"

namespace ddprun {

class Evaluations : public Observer {
 public:
  // All must outlive this object. `kept` has parts. What an evaluation finds goes into the place of
  // `state`.
  Evaluations(const Config& config, const Dataset& data, World& world, Console& console,
              KeptTraining& kept, TrainingState& state, TrainingCheckpoints& checkpoints,
              Observers& observers);

  void OnStepEnd(const TrainingState& state, const StepResult&) override;
  void OnGoBack(const TrainingState&) override { latest_.reset(); }

  // Evaluates the model as it is. `last`: after the last step, for the summary; else training goes
  // on. All ranks must call it. Nothing comes of it if a signal asks for the end.
  void Evaluate(bool last);

  // That of the model as it is; nothing if a step was made since then.
  const std::optional<Evaluation>& latest() const { return latest_; }

 private:
  std::optional<Evaluation> EvaluateAverage();
  // Whether the latest is the best so far.
  void CountBest();
  // Exchanges parameters and average, if one is kept.
  void SwapAverage();

  const Config& config_;
  World& world_;
  Console& console_;
  KeptTraining& kept_;
  TrainingState& state_;
  TrainingCheckpoints& checkpoints_;
  Observers& observers_;
  const std::int64_t classes_;
  const std::unique_ptr<TestFeed> test_feed_;
  std::optional<Evaluation> latest_;
};

}  // namespace ddprun
