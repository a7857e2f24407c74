// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/config/config.h"
#include "worker/metrics/metrics_writer.h"
#include "worker/observers/observer.h"
#include "worker/step/step_counter.h"

namespace ddprun {

// Records a training's numbers as metrics, on one rank: in metrics.jsonl and for TensorBoard.
class ScalarRecorder : public Observer {
 public:
  // Both must outlive the recorder.
  ScalarRecorder(const Config& config, const StepCounter& counter)
      : config_(config), counter_(counter) {}

  void OnBegin(const TrainingState& state) override;
  void OnStepEnd(const TrainingState& state, const StepEvent& event) override;
  void OnEpochEnd(const TrainingState& state, std::int64_t epoch,
                  const Evaluation& totals) override;
  void OnEvaluation(const TrainingState& state, const Evaluation& evaluation, bool last) override;

 private:
  // What the steps since the record before came to.
  void WriteSteps(const TrainingState& state, const TrainStep& step);
  // `set`: "test" or "train".
  void WriteMetrics(const TrainingState& state, const char* loss_name, const char* set,
                    const Evaluation& evaluation);

  const Config& config_;
  const StepCounter& counter_;
  std::optional<MetricsWriter> writer_;
  StepCounter::Counts at_record_;  // of the latest record
  at::Tensor losses_;              // their sum since then, on the device
};

}  // namespace ddprun
