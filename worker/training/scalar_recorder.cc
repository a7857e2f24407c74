// SPDX-License-Identifier: Apache-2.0
#include "worker/training/scalar_recorder.h"

#include <ATen/Functions.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

MetricsWriter::Options LogOptions(const Config& config, std::int64_t steps_done) {
  return {
      .directory = config.output_dir,
      .jsonl = config.metrics,
      .tensorboard = config.tensorboard,
      .steps_done = steps_done,
      .warn = [](const std::string& text) { std::fprintf(stderr, "train: %s\n", text.c_str()); }};
}

}  // namespace

ScalarRecorder::ScalarRecorder(const Config& config, const StepClock& clock,
                               std::int64_t steps_done)
    : clock_(clock),
      log_(LogOptions(config, steps_done)),
      since_(std::chrono::steady_clock::now()),
      times_before_(clock.totals()) {}

void ScalarRecorder::AddStep(const at::Tensor& loss, std::int64_t images) {
  losses_ = losses_.defined() ? losses_ + loss : loss;
  images_ += images;
}

void ScalarRecorder::WriteTraining(const Place& place, double learning_rate,
                                   std::optional<double> gradient_norm) {
  const SectionTimes times = clock_.totals() - times_before_;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  std::vector<Scalar> scalars = {
      {"epoch", place.epoch},
      {"loss/train", losses_.item<double>() / static_cast<double>(times.steps)},
      {"learning_rate", learning_rate},
      {"throughput/images_per_second", static_cast<double>(images_) / seconds},
      {"time/data_wait", times.PerStep(StepSection::kData)},
      {"time/gradient_wait", times.PerStep(StepSection::kGradients)}};
  if (gradient_norm) scalars.push_back({"grad_norm", *gradient_norm});
  log_.Write(place.step, std::move(scalars));
  since_ = now;
  times_before_ = clock_.totals();
  images_ = 0;
  losses_.reset();
}

void ScalarRecorder::WriteEpoch(const Place& place, const Evaluation& epoch) {
  std::vector<Scalar> scalars = {{"epoch", place.epoch}, {"loss/epoch", epoch.loss}};
  for (const auto& entry : epoch.sums)
    scalars.push_back({entry.first + "/train", epoch.Mean(entry.first)});
  log_.Write(place.step, std::move(scalars));
}

void ScalarRecorder::WriteTest(const Place& place, const Evaluation& evaluation) {
  std::vector<Scalar> scalars = {{"epoch", place.epoch}, {"loss/test", evaluation.loss}};
  for (const auto& entry : evaluation.sums)
    scalars.push_back({entry.first + "/test", evaluation.Mean(entry.first)});
  log_.Write(place.step, std::move(scalars));
}

}  // namespace ddprun
