// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/evaluations.h"

#include <chrono>
#include <string>

#include "worker/train/evaluation/evaluate.h"
#include "worker/train/training/results.h"

namespace ddprun {

Evaluations::Evaluations(const Config& config, const Dataset& data, World& world, Console& console,
                         KeptTraining& kept, TrainingState& state, TrainingCheckpoints& checkpoints,
                         Observers& observers)
    : config_(config),
      world_(world),
      console_(console),
      kept_(kept),
      state_(state),
      checkpoints_(checkpoints),
      observers_(observers),
      classes_(data.classes),
      test_feed_(MakeTestFeed(config, data, world, kept.parts->strategy->shard(),
                              kept.parts->strategy->image_type())) {}

void Evaluations::OnStepEnd(const TrainingState& state, const StepResult&) {
  latest_.reset();
  if (state.EvaluationIsDue()) Evaluate(/*last=*/false);
}

void Evaluations::Evaluate(bool last) {
  const auto begun = std::chrono::steady_clock::now();
  observers_.OnSection(StepSection::kEvaluation);
  if (!last) state_.place.evaluation_due = true;  // again, if the world ends before
  observers_.Notify(&Observer::BeforeRead, state_);
  checkpoints_.BeforeUpdate();  // of the average
  SwapAverage();
  try {
    latest_ = EvaluateAverage();
  } catch (...) {
    SwapAverage();
    throw;
  }
  SwapAverage();
  kept_.summary.evaluation_seconds = SecondsSince(begun);
  observers_.OnSection(StepSection::kOther);
  if (latest_) {
    const std::string left_out = LeftOut(*latest_, *test_feed_);
    if (world_.rank() == 0 && !left_out.empty()) console_.Line(left_out);
    CountBest();
    observers_.Notify(&Observer::OnEvaluation, state_, *latest_, last);
  }
  if (last) return;
  state_.place.evaluation_due = !latest_;
  state_.place.reached_target = latest_ && config_.target_accuracy > 0 &&
                                100 * latest_->accuracy() >= config_.target_accuracy;
  kept_.parts->strategy->Train();
  kept_.counter.LeaveOut(std::chrono::steady_clock::now() - begun);
}

void Evaluations::CountBest() {
  BestEvaluation& best = state_.place.best;
  const std::int64_t step = state_.position().step;
  best.Count(config_, step, latest_->accuracy(), latest_->loss);
  if (best.step != step) return;
  best.epoch = state_.EpochsDone();
  kept_.summary.best_by_class = {.step = step, .counts = latest_->by_class};
}

std::optional<Evaluation> Evaluations::EvaluateAverage() {
  ParallelStrategy& strategy = *kept_.parts->strategy;
  strategy.Evaluate();
  auto evaluation = ddprun::Evaluate(config_, world_, strategy, *test_feed_, classes_, [this] {
    observers_.Notify(&Observer::OnPhase, "evaluate");  // each batch is progress
    world_.CheckRound();
    return checkpoints_.EvaluationGoesOn();
  });
  checkpoints_.EndEvaluation();
  return evaluation;
}

void Evaluations::SwapAverage() {
  TrainingParts& parts = *kept_.parts;
  if (!parts.average) return;
  parts.average->Swap();
  parts.WeightsChanged();
}

}  // namespace ddprun
