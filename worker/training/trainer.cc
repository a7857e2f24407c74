// SPDX-License-Identifier: Apache-2.0
#include "worker/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "worker/base/step_seed.h"
#include "worker/data/damaged_samples.h"
#include "worker/evaluation/evaluate.h"
#include "worker/observers/make_observers.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/step/make_train_step.h"
#include "worker/training/checks.h"
#include "worker/training/results.h"
#include "worker/training/warm_up.h"

namespace ddprun {
namespace {

// The parts of `kept` in this world, with `enter` for the sections of a step.
TrainingParts& JoinWorld(const Config& config, const Dataset& data, World& world, Console& console,
                         const RoundStart& start, std::int64_t steps_per_epoch, KeptTraining& kept,
                         std::function<void(StepSection)> enter) {
  TrainingParts::Membership membership{.world = world,
                                       .console = console,
                                       .steps_per_epoch = steps_per_epoch,
                                       .enter = std::move(enter),
                                       .goes_on = start.goes_on,
                                       .layout = kept.layout};
  // What one rank has of its own must not end with it, unless all end with the world.
  membership.kept = world.interrupt() != nullptr;
  if (membership.kept) membership.after_forward = [&kept, &world] { kept.Send(world); };
  AgreeOnKernels(world, console);
  kept.Join(config, data, std::move(membership));
  if (start.sends) ReceiveState(world, start, kept);
  return *kept.parts;
}

// Before NCCL's collectives are aborted, which was registered when the world was made.
Interrupt::Registration CloseWhenRoundEnds(const World& world, GraphSteps& steps) {
  if (!world.interrupt()) return nullptr;
  return world.interrupt()->Register([&steps] { steps.Close(); });
}

}  // namespace

Trainer::Trainer(const Config& config, const Dataset& data, World& world, Console& console,
                 GraphSteps& graph_steps, KeptTraining& kept)
    : config_(config),
      data_(data),
      world_(world),
      console_(console),
      kept_(kept),
      closing_steps_(CloseWhenRoundEnds(world, graph_steps)),
      start_(AgreeOnStart(world, kept)),
      settled_(world.device().is_cpu()),
      clock_(kept.clock),
      counter_(kept.counter),
      observers_(MakeObservers(config, world, console, clock_, counter_)),
      state_(config, data.train->size(), DataParallelSize(config, world.size())),
      parts_(JoinWorld(config, data, world, console, start_, state_.plan().steps_per_epoch, kept,
                       [this](StepSection section) { Enter(section); })),
      replicas_(config, world, console, kept),
      checkpoints_(config, data, world, console, parts_, kept.saved,
                   [this] {
                     AwaitSteps();
                     CheckReplicas();
                   }),
      step_(parts_.MakeStep({.on_loss =
                                 [this](const at::Tensor& loss) {
                                   if (loss.is_cpu()) ReadLoss(loss, state_.position().step + 1);
                                 },
                             .before_update =
                                 [this] {
                                   kept_.Await(world_);
                                   replicas_.BeforeUpdate();
                                   checkpoints_.BeforeUpdate();
                                 },
                             .enter = [this](StepSection section) { Enter(section); }},
                            graph_steps)),
      test_feed_(MakeTestFeed(config, data, world, parts_.strategy->shard(),
                              parts_.strategy->image_type())),
      summary_(kept.summary) {}

void Trainer::Run() {
  Begin();
  while (true) {
    try {
      Train();
      return;
    } catch (const ReplicasDiffer&) {
    }
    GoBack();
  }
}

void Trainer::Train() {
  CheckReplicas();
  if (state_.place.evaluation_due) {
    Evaluate(/*last=*/false);
    checkpoints_.StopIfAsked(state_.place);
  }
  checkpoints_.SaveBest(state_.place);  // also of a world that has ended before it was saved
  while (!state_.Done()) TrainEpoch();
  Finish();
}

void Trainer::Begin() {
  parts_.strategy->Train();
  if (start_.goes_on)
    GoOn();
  else
    BeginAnew();
}

void Trainer::BeginAnew() {
  Notify(&Observer::OnPhase, "checkpoint");
  state_.GoOnFrom(checkpoints_.Resume());
  parts_.WeightsChanged();
  kept_.Accept(state_.place);
  if (WholeModelOnGpu(config_, world_) && !state_.Done()) {
    kept_.has_state = false;  // it is changed, and put back at the end
    WarmUp();
    kept_.Accept(state_.place);
  }
  Notify(&Observer::OnPhase, "barrier");
  world_.Barrier();
  counter_.Begin();  // observers read it
  Notify(&Observer::OnBegin, state_);
  Enter(StepSection::kOther);
  counter_.Begin();
}

void Trainer::GoOn() {
  checkpoints_.GoOn();
  state_.GoOnFrom(start_.place);
  kept_.Accept(state_.place);
  if (kept_.left == Time{})
    counter_.Begin();
  else
    counter_.LeaveOut(std::chrono::steady_clock::now() - kept_.left);
  if (world_.rank() == 0)
    console_.Line(
        "goes on after step " + std::to_string(state_.position().step) + " with " +
        std::to_string(world_.size()) + (world_.size() == 1 ? " rank" : " ranks") +
        (start_.sends ? "; the state is rank " + std::to_string(start_.source) + "'s" : ""));
  Notify(&Observer::OnBegin, state_);
  Enter(StepSection::kOther);
  // The end of the epoch may have been interrupted.
  const TrainingPosition& at = state_.position();
  if (at.step > 0 && at.consumed == 0) ReportEpoch(at.epoch);
}

void Trainer::Stop(int signal) {
  checkpoints_.GoOn();
  checkpoints_.Stop(start_.place, signal);
}

// What is read, saved or evaluated from here on are complete steps. Without an interrupt nothing
// undoes a step, and the device may be behind.
void Trainer::AwaitSteps() {
  if (world_.interrupt()) step_->AwaitQueued();
}

void Trainer::CheckReplicas() {
  if (config_.check_replicas == 0) return;  // nor wait for the device
  if (!replicas_.enabled()) return;
  step_->AwaitQueued();
  replicas_.Check(state_.place);
}

void Trainer::GoBack() {
  Enter(StepSection::kOther);
  checkpoints_.BeforeUpdate();
  replicas_.GoBack(state_.place);
  state_.EndEpochIfConsumed();
  state_.GoOnFrom(TrainingPlace(state_.place));
  parts_.strategy->Train();
  evaluation_.reset();
  Notify(&Observer::OnGoBack, state_);
}

TrainingPlace Trainer::PlaceAtEnd() {
  state_.EndEpochIfConsumed();
  return state_.place;
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
  if (data_.damaged) data_.damaged->TakeFilled();  // those of a warm-up's batches
  step_->BeginEpoch(sampler, static_cast<std::uint64_t>(epoch));
  StepBatches batches;
  for (; batches.first < sampler.batches() && !state_.Done(); batches.first += batches.count) {
    batches.count = std::min(config_.accumulate, sampler.batches() - batches.first);
    world_.CheckRound();
    Notify(&Observer::OnStepBegin, state_, sampler, batches);
    checkpoints_.BeginStep();
    replicas_.BeginStep(state_.place);
    if (world_.interrupt()) kept_.BeginStep(state_.place);
    step_->UseForward(parts_.model->Advance(state_.PlannedEpochs()));
    SeedStep(world_.device(), config_.seed, state_.position().step + 1, world_.rank());
    // Batches, forward, backward with the all-reduce, optimizer: train_step.cc.
    const TrainStep::Result result =
        step_->Make(batches, state_.LearningRate(), state_.position().step + 1);
    state_.EndStep(sampler, batches.first + batches.count - 1);
    if (world_.interrupt()) kept_.Commit();
    Record(result);
    if (state_.EvaluationIsDue()) Evaluate(/*last=*/false);
    state_.EndEpochIfConsumed();
    if (replicas_.IsDue(state_.position().step)) CheckReplicas();
    Enter(StepSection::kCheckpoint);
    checkpoints_.EndStep(state_.place);
  }
  CheckReplicas();
  // Reports an epoch also if it was not trained to its end, or not from its beginning.
  ReportEpoch(epoch + 1);
}

void Trainer::ReportEpoch(std::int64_t epoch) {
  Enter(StepSection::kOther);
  AwaitSteps();
  const Evaluation totals = parts_.epoch_sums.Take(world_);
  if (totals.images > 0) Notify(&Observer::OnEpochEnd, state_, epoch, totals);
  if (data_.damaged) ReportDamaged(epoch);
}

void Trainer::ReportDamaged(std::int64_t epoch) {
  at::Tensor filled =
      at::tensor({data_.damaged->TakeFilled()}, at::TensorOptions(at::kLong)).to(world_.device());
  world_.AllReduceSum(filled);
  // All stages of a pipeline load the same images.
  const int stages = world_.size() / parts_.strategy->shard().world_size;
  const std::int64_t count = world_.ToHost(filled).item<std::int64_t>() / stages;
  if (count == 0 || world_.rank() != 0) return;
  console_.Line("epoch " + std::to_string(epoch) + ": " + std::to_string(count) +
                (count == 1 ? " damaged training image was" : " damaged training images were") +
                " replaced by the next ones");
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
    summary_.CountFirstStep(kept_.start);
    settled_ = true;
  }
  clock_.EndStep();
  Notify(&Observer::OnStepEnd, state_,
         StepEvent{.result = result, .step = *step_, .loss = kept_.loss, .is_logged = is_logged});
}

void Trainer::Evaluate(bool last) {
  const auto begun = std::chrono::steady_clock::now();
  Enter(StepSection::kEvaluation);
  if (!last) state_.place.evaluation_due = true;  // again, if the world ends before
  AwaitSteps();
  CheckReplicas();
  checkpoints_.BeforeUpdate();  // of the average
  SwapAverage();
  try {
    evaluation_ = EvaluateAverage();
  } catch (...) {
    SwapAverage();
    throw;
  }
  SwapAverage();
  summary_.evaluation_seconds = SecondsSince(begun);
  Enter(StepSection::kOther);
  if (evaluation_) {
    const std::string left_out = LeftOut(*evaluation_, *test_feed_);
    if (world_.rank() == 0 && !left_out.empty()) console_.Line(left_out);
    state_.place.best.Count(config_, state_.position().step, evaluation_->accuracy(),
                            evaluation_->loss);
    Notify(&Observer::OnEvaluation, state_, *evaluation_, last);
  }
  if (last) return;
  state_.place.evaluation_due = !evaluation_;
  state_.place.reached_target = evaluation_ && config_.target_accuracy > 0 &&
                                100 * evaluation_->accuracy() >= config_.target_accuracy;
  parts_.strategy->Train();
  counter_.LeaveOut(std::chrono::steady_clock::now() - begun);
}

std::optional<Evaluation> Trainer::EvaluateAverage() {
  parts_.strategy->Evaluate();
  auto evaluation = ddprun::Evaluate(config_, world_, *parts_.strategy, *test_feed_, [this] {
    Notify(&Observer::OnSection, StepSection::kEvaluation);  // each batch is progress
    world_.CheckRound();
    return checkpoints_.EvaluationGoesOn();
  });
  checkpoints_.EndEvaluation();
  return evaluation;
}

void Trainer::SwapAverage() {
  if (!parts_.average) return;
  parts_.average->Swap();
  parts_.WeightsChanged();
}

void Trainer::Finish() {
  checkpoints_.EndSteps();
  AwaitSteps();
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
    checkpoints_.SaveBest(state_.place);
  }
  Enter(StepSection::kCheckpoint);
  summary_.evaluation = evaluation_;
  summary_.loss = kept_.loss;
  summary_.best = state_.place.best;
  summary_.best_description = Describe(config_, summary_.best);
  summary_.best_file = checkpoints_.BestFile(summary_.best);
  summary_.cuda_graph = step_->is_graph();
  summary_.rank_time = clock_.rank_time();
  WriteResults(config_, data_, world_, console_, kept_);
}

// A loss that is not finite ends the training before it changes anything. With fp16 the scaler
// skips such a step and lowers its scale, which ends the training when it is below 1. Where a
// rank's memory may be damaged, the step is repeated first.
void Trainer::ReadLoss(const at::Tensor& loss, std::int64_t step) {
  kept_.loss = world_.ToHost(loss).item<double>();
  const GradScaler& scaler = parts_.scaler;
  const bool too_small = scaler.enabled() && scaler.state().scale < 1;
  const double checked = too_small ? std::nan("") : kept_.loss;
  if (scaler.enabled() && !too_small) return;
  if (std::isfinite(checked) || replicas_.MayBeDamage(step)) return;
  CheckFinite(checked, step, state_.position().epoch + 1, config_, world_);
}

void Trainer::Enter(StepSection section) {
  if (warming_up_) return;
  clock_.Enter(section);
  world_.ExpectPeersSoon(settled_ && IsWithinStep(section));
  Notify(&Observer::OnSection, section);
}

}  // namespace ddprun
