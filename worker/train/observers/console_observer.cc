// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>
#include <string>

#include "worker/library/base/text.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// Lines of steps on every rank; on rank 0 lines of epochs and evaluations, and a progress bar.
class ConsoleObserver : public Observer {
 public:
  // All must outlive the observer.
  ConsoleObserver(const Config& config, const World& world, Console& console,
                  const StepCounter& counter)
      : config_(config), world_(world), console_(console), counter_(counter) {}

  void OnBegin(const TrainingState& state) override {
    OnGoBack(state);
    const std::int64_t step = state.position().step;
    if (step == 0 || !state.Done() || world_.rank() != 0) return;
    console_.Line("the training is complete at step " + std::to_string(step) + WhyComplete(state) +
                  ": no step is left");
  }

  void OnGoBack(const TrainingState&) override {
    at_line_ = counter_.Now();
    at_begin_ = at_line_.steps;
    begun_ = std::chrono::steady_clock::now();
  }

  void OnStepEnd(const TrainingState& state, const StepResult&) override {
    if (state.StepIsLogged()) ShowLine(state, counter_.loss());
    if (console_.BarIsDue(std::chrono::steady_clock::now()) && !state.Done())
      ShowBar(state, counter_.loss());
  }

  void OnEpochEnd(const TrainingState& state, std::int64_t epoch,
                  const Evaluation& totals) override {
    if (world_.rank() != 0) return;
    console_.Line("epoch " + std::to_string(epoch) + "/" + std::to_string(state.plan().epochs) +
                  " mean loss " + Fixed(totals.loss, 4) + " training accuracy " +
                  Percent(totals.accuracy()) + " (" + std::to_string(totals.images) +
                  " images of all ranks)");
  }

  void OnEvaluation(const TrainingState& state, const Evaluation& evaluation, bool last) override {
    latest_accuracy_ = evaluation.accuracy();
    if (world_.rank() != 0 || last) return;
    console_.Line("epoch " + std::to_string(state.position().epoch + 1) + " step " +
                  std::to_string(state.position().step) + " test accuracy " +
                  Percent(evaluation.accuracy()) + " loss " + Fixed(evaluation.loss, 4));
    if (IsOutOfPatience(config_, state.place.best))
      console_.Line("training ends after step " + std::to_string(state.position().step) +
                    ": --patience " + std::to_string(config_.patience) +
                    ", and no evaluation since was better than the " +
                    Describe(config_, state.place.best));
  }

 private:
  std::string WhyComplete(const TrainingState& state) const {
    if (IsOutOfPatience(config_, state.place.best))
      return " of --patience " + std::to_string(config_.patience);
    if (config_.max_steps) return " of --max-steps " + std::to_string(*config_.max_steps);
    return " of --epochs " + ToText(config_, *FindSetting("epochs"));
  }

  void ShowLine(const TrainingState& state, double loss) {
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

  void ShowBar(const TrainingState& state, double loss) {
    const StepCounter::Counts now = counter_.Now();
    // With the evaluations and checkpoints between steps: those to come take as long.
    const StepCounter::Seconds a_step =
        StepCounter::Seconds(std::chrono::steady_clock::now() - begun_) /
        static_cast<double>(now.steps - at_begin_);
    console_.Bar(
        ToBar({.epoch = state.position().epoch + 1,
               .epochs = state.plan().epochs,
               .step = state.plan_step(),
               .steps = state.plan().steps,
               .loss = loss,
               .accuracy = latest_accuracy_,
               .images_per_second = now.images_per_second(),
               .data_wait = now.sections.Share(StepSection::kData),
               .left = a_step * static_cast<double>(state.plan().steps - state.plan_step())},
              console_.BarColumns()));
  }

  const Config& config_;
  const World& world_;
  Console& console_;
  const StepCounter& counter_;
  StepCounter::Counts at_line_;  // of the latest line
  std::int64_t at_begin_ = 0;    // steps that the counter had when they began here
  std::chrono::steady_clock::time_point begun_;
  std::optional<double> latest_accuracy_;
};

}  // namespace

std::unique_ptr<Observer> MakeConsoleObserver(const Config& config, const World& world,
                                              Console& console, const StepCounter& counter) {
  return std::make_unique<ConsoleObserver>(config, world, console, counter);
}

}  // namespace ddprun
