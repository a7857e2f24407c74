// SPDX-License-Identifier: Apache-2.0
// What of a training goes into its metrics, under which names. On one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "worker/config/config.h"
#include "worker/evaluation/evaluate.h"
#include "worker/metrics/metrics_writer.h"
#include "worker/metrics/step_clock.h"

namespace ddprun {

class ScalarRecorder {
 public:
  // Where in the training a record is.
  struct Place {
    std::int64_t step = 0;
    double epoch = 0;  // epochs done, with the fraction of the one that has begun
  };

  // Writes into config.output_dir, from now on; the run has `steps_done` behind it. The clock must
  // outlive the log.
  ScalarRecorder(const Config& config, const StepClock& clock, std::int64_t steps_done);

  // A step has been made: its mean loss, still on the device, and its images of all ranks.
  void AddStep(const at::Tensor& loss, std::int64_t images);

  // What the steps since the record before came to. Waits for a device.
  void WriteTraining(const Place& place, double learning_rate, std::optional<double> gradient_norm);
  void WriteEpoch(const Place& place, const Evaluation& epoch);
  void WriteTest(const Place& place, const Evaluation& evaluation);

  // So long nothing was trained: speeds are those of training.
  void LeaveOut(std::chrono::steady_clock::duration time) { since_ += time; }

 private:
  const StepClock& clock_;
  MetricsWriter log_;
  // Since the latest record.
  std::chrono::steady_clock::time_point since_;
  SectionTimes times_before_;
  std::int64_t images_ = 0;
  at::Tensor losses_;  // their sum
};

}  // namespace ddprun
