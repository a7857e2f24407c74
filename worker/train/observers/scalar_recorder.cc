// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/metrics/console.h"
#include "worker/train/metrics/metrics_writer.h"
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// Records a training's numbers as metrics, on one rank: in metrics.jsonl and for TensorBoard.
class ScalarRecorder : public Observer {
 public:
  // Both must outlive the recorder.
  ScalarRecorder(const Config& config, const StepCounter& counter)
      : config_(config), counter_(counter) {}

  void OnBegin(const TrainingState& state) override { Open(state, /*goes_back=*/false); }

  void OnGoBack(const TrainingState& state) override { Open(state, /*goes_back=*/true); }

  void OnStepEnd(const TrainingState& state, const StepResult& result) override {
    losses_ = losses_.defined() ? losses_ + result.loss : result.loss;
    if (state.StepIsLogged()) WriteSteps(state, result);
  }

  void OnEpochEnd(const TrainingState& state, std::int64_t, const Evaluation& totals) override {
    WriteMetrics(state, "loss/epoch", "train", totals);
  }

  void OnEvaluation(const TrainingState& state, const Evaluation& evaluation, bool) override {
    WriteMetrics(state, "loss/test", "test", evaluation);
  }

 private:
  void Open(const TrainingState& state, bool goes_back) {
    at_record_ = counter_.Now();
    losses_.reset();
    writer_.reset();  // what it has is in the file then
    writer_.emplace(MetricsWriter::Options{.directory = config_.output_dir,
                                           .jsonl = config_.metrics,
                                           .tensorboard = config_.tensorboard,
                                           .steps_done = state.position().step,
                                           .goes_back = goes_back,
                                           .warn = [](const std::string& text) {
                                             EraseBar();
                                             std::fprintf(stderr, "train: %s\n", text.c_str());
                                           }});
  }

  // What the steps since the record before came to.
  void WriteSteps(const TrainingState& state, const StepResult& result) {
    const StepCounter::Counts now = counter_.Now();
    const StepCounter::Counts since = now - at_record_;
    std::vector<Scalar> scalars = {
        {"epoch", state.EpochsDone()},
        {"loss/train", losses_.item<double>() / static_cast<double>(since.steps)},
        {"learning_rate", state.LatestLearningRate()},
        {"throughput/images_per_second", since.images_per_second()},
        {"time/data_wait", since.sections.PerStep(StepSection::kData)},
        {"time/gradient_wait", since.sections.PerStep(StepSection::kGradients)}};
    if (config_.clip_norm > 0)
      scalars.push_back({"grad_norm", result.gradient_norm.item<double>()});
    writer_->Write(state.position().step, std::move(scalars));
    at_record_ = now;
    losses_.reset();
  }

  // `set`: "test" or "train".
  void WriteMetrics(const TrainingState& state, const char* loss_name, const char* set,
                    const Evaluation& evaluation) {
    std::vector<Scalar> scalars = {{"epoch", state.EpochsDone()}, {loss_name, evaluation.loss}};
    for (const auto& entry : evaluation.sums)
      scalars.push_back({entry.first + "/" + set, evaluation.Mean(entry.first)});
    writer_->Write(state.position().step, std::move(scalars));
  }

  const Config& config_;
  const StepCounter& counter_;
  std::optional<MetricsWriter> writer_;
  StepCounter::Counts at_record_;  // of the latest record
  at::Tensor losses_;              // their sum since then, on the device
};

}  // namespace

std::unique_ptr<Observer> MakeScalarRecorder(const Config& config, const StepCounter& counter) {
  return std::make_unique<ScalarRecorder>(config, counter);
}

}  // namespace ddprun
