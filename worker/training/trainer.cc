// SPDX-License-Identifier: Apache-2.0
#include "worker/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "worker/evaluation/evaluate.h"
#include "worker/observers/make_observers.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/step/make_train_step.h"
#include "worker/training/checks.h"
#include "worker/training/results.h"
#include "worker/training/warm_up.h"

namespace ddprun {
Trainer::Trainer(const Config& config, const Dataset& data, World& world, Console& console,
                 ProgressSender& progress, GraphSteps& graph_steps, Time program_start)
    : config_(config),
      data_(data),
      world_(world),
      console_(console),
      program_start_(program_start),
      settled_(world.device().is_cpu()),
      clock_(program_start),
      counter_(clock_),
      observers_(MakeObservers(config, world, console, progress, clock_, counter_)),
      state_(config, data.train->size(), DataParallelSize(config, world.size())),
      parts_(config, data, world, console, state_.plan().steps_per_epoch,
             [this](StepSection section) { Enter(section); }),
      checkpoints_(config, data, world, console, parts_),
      step_(parts_.MakeStep({.on_loss =
                                 [this](const at::Tensor& loss) {
                                   if (loss.is_cpu()) ReadLoss(loss, state_.position().step + 1);
                                 },
                             .before_update = [this] { checkpoints_.BeforeUpdate(); },
                             .enter = [this](StepSection section) { Enter(section); }},
                            graph_steps)),
      test_feed_(MakeTestFeed(config, data, world, parts_.strategy->shard(),
                              parts_.strategy->image_type())) {}

void Trainer::Run() {
  Begin();
  while (!state_.Done()) TrainEpoch();
  Finish();
}

void Trainer::Begin() {
  parts_.strategy->Train();
  Notify(&Observer::OnPhase, "checkpoint");
  state_.GoOnFrom(checkpoints_.Resume());
  parts_.WeightsChanged();
  if (WholeModelOnGpu(config_, world_) && !state_.Done()) WarmUp();
  Notify(&Observer::OnPhase, "barrier");
  world_.Barrier();
  Notify(&Observer::OnBegin, state_);
  Enter(StepSection::kOther);
  counter_.Begin();
  if (!state_.place.evaluation_due) return;
  Evaluate(/*last=*/false);
  checkpoints_.StopIfAsked(state_.place);
}

void Trainer::WarmUp() {
  Notify(&Observer::OnPhase, "warm-up");
  const auto begun = std::chrono::steady_clock::now();
  warming_up_ = true;
  ddprun::WarmUp(config_, data_, world_, parts_, *step_, state_);
  warming_up_ = false;
  settled_ = true;
  summary_.warm_up_seconds = SecondsSince(begun);
}

void Trainer::TrainEpoch() {
  const std::int64_t epoch = state_.position().epoch;
  const EpochPlan sampler = state_.BeginEpoch(parts_.strategy->shard());
  step_->BeginEpoch(sampler, static_cast<std::uint64_t>(epoch));
  StepBatches batches;
  for (; batches.first < sampler.batches() && !state_.Done(); batches.first += batches.count) {
    batches.count = std::min(config_.accumulate, sampler.batches() - batches.first);
    Notify(&Observer::OnStepBegin, state_, sampler, batches);
    checkpoints_.BeginStep();
    step_->UseForward(parts_.model->Advance(state_.PlannedEpochs()));
    // Batches, forward, backward with the all-reduce, optimizer: train_step.cc.
    const TrainStep::Result result =
        step_->Make(batches, state_.LearningRate(), state_.position().step + 1);
    state_.EndStep(sampler, batches.first + batches.count - 1);
    Record(result);
    if (state_.EvaluationIsDue()) Evaluate(/*last=*/false);
    state_.EndEpochIfConsumed();
    Enter(StepSection::kCheckpoint);
    checkpoints_.EndStep(state_.place);
  }
  // Also of an epoch that was not trained to its end, or not from its beginning.
  Enter(StepSection::kOther);
  const Evaluation totals = parts_.epoch_sums.Take(world_);
  if (totals.images > 0) Notify(&Observer::OnEpochEnd, state_, epoch + 1, totals);
}

void Trainer::Record(const TrainStep::Result& result) {
  counter_.Add(result);
  evaluation_.reset();
  const bool is_logged = state_.step_of_epoch() % config_.log_every == 0 ||
                         state_.step_of_epoch() == state_.steps_of_epoch();
  const bool is_first = counter_.Now().steps == 1;
  if (is_logged || is_first) step_->AwaitQueued();
  // Reading a number from a GPU waits for it.
  if (is_logged && !result.loss.is_cpu()) ReadLoss(result.loss, state_.position().step);
  if (is_first) {
    world_.Synchronize();
    summary_.CountFirstStep(program_start_);
    settled_ = true;
  }
  clock_.EndStep();
  Notify(&Observer::OnStepEnd, state_,
         StepEvent{.result = result, .step = *step_, .loss = loss_, .is_logged = is_logged});
}

void Trainer::Evaluate(bool last) {
  const auto begun = std::chrono::steady_clock::now();
  Enter(StepSection::kEvaluation);
  checkpoints_.BeforeUpdate();  // of the average
  SwapAverage();
  parts_.strategy->Evaluate();
  evaluation_ = ddprun::Evaluate(config_, world_, *parts_.strategy, *test_feed_,
                                 [this] { return checkpoints_.EvaluationGoesOn(); });
  checkpoints_.EndEvaluation();
  SwapAverage();
  summary_.evaluation_seconds = SecondsSince(begun);
  Enter(StepSection::kOther);
  if (evaluation_) {
    summary_.best_accuracy = std::max(summary_.best_accuracy, evaluation_->accuracy());
    Notify(&Observer::OnEvaluation, state_, *evaluation_, last);
  }
  if (last) return;
  state_.place.evaluation_due = !evaluation_;
  state_.place.reached_target = evaluation_ && config_.target_accuracy > 0 &&
                                100 * evaluation_->accuracy() >= config_.target_accuracy;
  parts_.strategy->Train();
  counter_.LeaveOut(std::chrono::steady_clock::now() - begun);
}

void Trainer::SwapAverage() {
  if (!parts_.average) return;
  parts_.average->Swap();
  parts_.WeightsChanged();
}

void Trainer::Finish() {
  checkpoints_.EndSteps();
  world_.Synchronize();
  summary_.Count(counter_.Now());
  Notify(&Observer::OnEnd);
  CheckParametersFinite(*parts_.strategy, state_.position().step, config_, world_);
  Enter(StepSection::kCheckpoint);
  checkpoints_.Finish(state_.place);
  parts_.strategy->Evaluate();
  CheckRanksAgree(*parts_.strategy, world_, console_);
  if (config_.eval && !evaluation_) {
    Evaluate(/*last=*/true);
    if (!evaluation_) checkpoints_.StopIfAsked(state_.place);
  }
  Enter(StepSection::kCheckpoint);
  summary_.evaluation = evaluation_;
  summary_.loss = loss_;
  summary_.cuda_graph = step_->is_graph();
  summary_.rank_time = clock_.rank_time();
  WriteResults(config_, data_, world_, console_, parts_, program_start_, summary_);
}

// A loss that is not finite ends the training before it changes anything. With fp16 the scaler
// skips such a step and lowers its scale, which ends the training when it is below 1.
void Trainer::ReadLoss(const at::Tensor& loss, std::int64_t step) {
  loss_ = loss.item<double>();
  const GradScaler& scaler = parts_.scaler;
  const bool too_small = scaler.enabled() && scaler.state().scale < 1;
  if (too_small || !scaler.enabled())
    CheckFinite(too_small ? std::nan("") : loss_, step, state_.position().epoch + 1, config_,
                world_);
}

void Trainer::Enter(StepSection section) {
  if (warming_up_) return;
  clock_.Enter(section);
  world_.ExpectPeersSoon(settled_ && IsWithinStep(section));
  Notify(&Observer::OnSection, section);
}

}  // namespace ddprun
