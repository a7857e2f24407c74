// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "worker/config/config.h"
#include "worker/distributed/world.h"
#include "worker/metrics/console.h"
#include "worker/observers/observer.h"
#include "worker/step/step_counter.h"

namespace ddprun {

// Lines of steps on every rank; on rank 0 lines of epochs and evaluations, and a progress bar.
class ConsoleObserver : public Observer {
 public:
  // All must outlive the observer.
  ConsoleObserver(const World& world, Console& console, const StepCounter& counter)
      : world_(world), console_(console), counter_(counter) {}

  void OnStepEnd(const TrainingState& state, const StepEvent& event) override;
  void OnEpochEnd(const TrainingState& state, std::int64_t epoch,
                  const Evaluation& totals) override;
  void OnEvaluation(const TrainingState& state, const Evaluation& evaluation, bool last) override;

 private:
  void ShowLine(const TrainingState& state, double loss);
  void ShowBar(const TrainingState& state, double loss);

  const World& world_;
  Console& console_;
  const StepCounter& counter_;
  StepCounter::Counts at_line_;  // of the latest line
  std::optional<double> latest_accuracy_;
};

}  // namespace ddprun
