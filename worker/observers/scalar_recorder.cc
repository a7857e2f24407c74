// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/scalar_recorder.h"

#include <ATen/Functions.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

void ScalarRecorder::OnBegin(const TrainingState& state) {
  writer_.emplace(MetricsWriter::Options{
      .directory = config_.output_dir,
      .jsonl = config_.metrics,
      .tensorboard = config_.tensorboard,
      .steps_done = state.position().step,
      .warn = [](const std::string& text) { std::fprintf(stderr, "train: %s\n", text.c_str()); }});
}

void ScalarRecorder::OnStepEnd(const TrainingState& state, const StepEvent& event) {
  losses_ = losses_.defined() ? losses_ + event.result.loss : event.result.loss;
  if (event.is_logged) WriteSteps(state, event.step);
}

void ScalarRecorder::WriteSteps(const TrainingState& state, const TrainStep& step) {
  const StepCounter::Counts now = counter_.Now();
  const StepCounter::Counts since = now - at_record_;
  std::vector<Scalar> scalars = {
      {"epoch", state.EpochsDone()},
      {"loss/train", losses_.item<double>() / static_cast<double>(since.steps)},
      {"learning_rate", state.LatestLearningRate()},
      {"throughput/images_per_second", since.images_per_second()},
      {"time/data_wait", since.sections.PerStep(StepSection::kData)},
      {"time/gradient_wait", since.sections.PerStep(StepSection::kGradients)}};
  if (config_.clip_norm > 0) scalars.push_back({"grad_norm", step.gradient_norm()});
  writer_->Write(state.position().step, std::move(scalars));
  at_record_ = now;
  losses_.reset();
}

void ScalarRecorder::WriteMetrics(const TrainingState& state, const char* loss_name,
                                  const char* set, const Evaluation& evaluation) {
  std::vector<Scalar> scalars = {{"epoch", state.EpochsDone()}, {loss_name, evaluation.loss}};
  for (const auto& entry : evaluation.sums)
    scalars.push_back({entry.first + "/" + set, evaluation.Mean(entry.first)});
  writer_->Write(state.position().step, std::move(scalars));
}

void ScalarRecorder::OnEpochEnd(const TrainingState& state, std::int64_t,
                                const Evaluation& totals) {
  WriteMetrics(state, "loss/epoch", "train", totals);
}

void ScalarRecorder::OnEvaluation(const TrainingState& state, const Evaluation& evaluation, bool) {
  WriteMetrics(state, "loss/test", "test", evaluation);
}

}  // namespace ddprun
