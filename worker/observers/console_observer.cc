// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/console_observer.h"

#include <chrono>
#include <string>

#include "worker/base/text.h"

namespace ddprun {

void ConsoleObserver::OnStepEnd(const TrainingState& state, const StepEvent& event) {
  if (event.is_logged) ShowLine(state, event.loss);
  if (console_.BarIsDue(std::chrono::steady_clock::now()) && !state.Done())
    ShowBar(state, event.loss);
}

void ConsoleObserver::ShowLine(const TrainingState& state, double loss) {
  const StepCounter::Counts now = counter_.Now();
  console_.Line(ToLine({.epoch = state.position().epoch + 1,
                        .epochs = state.plan().epochs,
                        .batch = state.step_of_epoch(),
                        .batches = state.steps_of_epoch(),
                        .loss = loss,
                        .learning_rate = state.LatestLearningRate(),
                        .images_per_second = (now - at_line_).own_images_per_second()}));
  at_line_ = now;
}

void ConsoleObserver::ShowBar(const TrainingState& state, double loss) {
  const StepCounter::Counts now = counter_.Now();
  const StepCounter::Seconds a_step =
      StepCounter::Seconds(now.time) / static_cast<double>(now.steps);
  console_.Bar(
      ToBar({.step = state.plan_step(),
             .steps = state.plan().steps,
             .loss = loss,
             .accuracy = latest_accuracy_,
             .images_per_second = now.images_per_second(),
             .data_wait = now.sections.Share(StepSection::kData),
             .left = a_step * static_cast<double>(state.plan().steps - state.plan_step())}));
}

void ConsoleObserver::OnEpochEnd(const TrainingState& state, std::int64_t epoch,
                                 const Evaluation& totals) {
  if (world_.rank() != 0) return;
  console_.Line("epoch " + std::to_string(epoch) + "/" + std::to_string(state.plan().epochs) +
                " mean loss " + Fixed(totals.loss, 4) + " training accuracy " +
                Percent(totals.accuracy()) + " (" + std::to_string(totals.images) +
                " images of all ranks)");
}

void ConsoleObserver::OnEvaluation(const TrainingState& state, const Evaluation& evaluation,
                                   bool last) {
  latest_accuracy_ = evaluation.accuracy();
  if (world_.rank() != 0 || last) return;
  console_.Line("epoch " + std::to_string(state.position().epoch + 1) + " step " +
                std::to_string(state.position().step) + " test accuracy " +
                Percent(evaluation.accuracy()) + " loss " + Fixed(evaluation.loss, 4));
}

}  // namespace ddprun
