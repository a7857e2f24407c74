// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/trainer.h"

#include <chrono>
#include <string>

#include "worker/train/observers/checks.h"
#include "worker/train/observers/make_observers.h"
#include "worker/train/parallel/pipeline_plan.h"
#include "worker/train/step/make_training_loop.h"
#include "worker/train/training/results.h"
#include "worker/train/training/warm_up.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// The parts of `kept` in this world.
TrainingParts& JoinWorld(const Config& config, const Dataset& data, World& world, Console& console,
                         Observers& observers, const RoundStart& start, KeptTraining& kept) {
  AgreeOnKernels(world, console);
  kept.Join(config, data,
            {.world = world,
             .console = console,
             .observers = observers,
             .goes_on = start.goes_on,
             .layout = kept.layout});
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
      state_(config, data.train->size(), DataParallelSize(config, world.size())),
      parts_(JoinWorld(config, data, world, console, observers_, start_, kept)),
      loop_(parts_.MakeLoop(graph_steps)),
      keeping_(kept, world),
      replicas_(config, world, console, kept, loop_->recorder()),
      checkpoints_(config, data, world, console, parts_, state_, kept.saved, observers_),
      meter_(config, world, kept, state_, loop_->recorder(), replicas_),
      shown_(MakeObservers(config, data, world, console, kept.clock, kept.counter)),
      evaluations_(config, data, world, console, kept, state_, checkpoints_, observers_) {
  if (world.interrupt()) observers_.Add(keeping_);
  observers_.Add(meter_);
  for (const auto& observer : shown_) observers_.Add(*observer);
  observers_.Add(evaluations_);
  observers_.Add(replicas_);
  observers_.Add(checkpoints_);
}

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
  replicas_.Check(state_.place);
  if (state_.place.evaluation_due) {
    evaluations_.Evaluate(/*last=*/false);
    checkpoints_.StopIfAsked();
  }
  checkpoints_.SaveBest();  // also of a world that has ended before it was saved
  while (!state_.Done()) {
    const std::int64_t epoch = state_.position().epoch + 1;
    loop_->TrainEpoch(state_, *parts_.model);
    observers_.OnSection(StepSection::kOther);
    observers_.Notify(&Observer::BeforeRead, state_);
    // Also if it was not trained to its end, or not from its beginning.
    ReportEpoch(epoch);
  }
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
  observers_.Notify(&Observer::OnPhase, "checkpoint");
  state_.GoOnFrom(checkpoints_.Resume());
  parts_.WeightsChanged();
  kept_.Accept(state_.place);
  if (WholeModelOnGpu(config_, world_) && !state_.Done()) {
    kept_.has_state = false;  // it is changed, and put back at the end
    WarmUp();
    kept_.Accept(state_.place);
  }
  observers_.Notify(&Observer::OnPhase, "barrier");
  world_.Barrier();
  kept_.counter.Begin();  // observers read it
  observers_.Notify(&Observer::OnBegin, state_);
  observers_.OnSection(StepSection::kOther);
  kept_.counter.Begin();
}

void Trainer::GoOn() {
  checkpoints_.GoOn();
  state_.GoOnFrom(start_.place);
  kept_.Accept(state_.place);
  if (kept_.left == Clock::time_point{})
    kept_.counter.Begin();
  else
    kept_.counter.LeaveOut(Clock::now() - kept_.left);
  if (world_.rank() == 0)
    console_.Line(
        "goes on after step " + std::to_string(state_.position().step) + " with " +
        std::to_string(world_.size()) + (world_.size() == 1 ? " rank" : " ranks") +
        (start_.sends ? "; the state is rank " + std::to_string(start_.source) + "'s" : ""));
  observers_.Notify(&Observer::OnBegin, state_);
  observers_.OnSection(StepSection::kOther);
  // The end of the epoch may have been interrupted.
  const TrainingPosition& at = state_.position();
  if (at.step > 0 && at.consumed == 0) ReportEpoch(at.epoch);
}

void Trainer::WarmUp() {
  observers_.Notify(&Observer::OnPhase, "warm-up");
  const auto begun = Clock::now();
  observers_.HideSections(true);
  ddprun::WarmUp(config_, data_, world_, parts_, *loop_, state_);
  observers_.HideSections(false);
  meter_.EndWarmUp(SecondsSince(begun));
}

void Trainer::GoBack() {
  observers_.OnSection(StepSection::kOther);
  checkpoints_.BeforeUpdate();
  replicas_.GoBack(state_.place);
  state_.EndEpochIfConsumed();
  state_.GoOnFrom(TrainingPlace(state_.place));
  parts_.strategy->Train();
  observers_.Notify(&Observer::OnGoBack, state_);
}

void Trainer::Stop(int signal) {
  checkpoints_.GoOn();
  state_.GoOnFrom(start_.place);
  checkpoints_.Stop(signal);
}

TrainingPlace Trainer::PlaceAtEnd() {
  state_.EndEpochIfConsumed();
  return state_.place;
}

void Trainer::ReportEpoch(std::int64_t epoch) {
  const Evaluation totals = parts_.epoch_sums.Take(world_);
  if (totals.images > 0) observers_.Notify(&Observer::OnEpochEnd, state_, epoch, totals);
}

void Trainer::Finish() {
  checkpoints_.EndSteps();
  world_.Synchronize();
  Summary& summary = kept_.summary;
  summary.Count(kept_.counter.Now());
  observers_.Notify(&Observer::OnEnd);
  CheckParametersFinite(*parts_.strategy, state_.position().step, config_, world_);
  observers_.OnSection(StepSection::kCheckpoint);
  checkpoints_.Finish();
  parts_.strategy->Evaluate();
  CheckRanksAgree(*parts_.strategy, world_, console_);
  if (config_.eval && !evaluations_.latest()) {
    evaluations_.Evaluate(/*last=*/true);
    if (!evaluations_.latest()) checkpoints_.StopIfAsked();
    checkpoints_.SaveBest();
  }
  observers_.OnSection(StepSection::kCheckpoint);
  summary.evaluation = evaluations_.latest();
  summary.best = state_.place.best;
  summary.best_description = Describe(config_, summary.best);
  summary.best_file = checkpoints_.BestFile(summary.best);
  summary.ChooseClasses(state_.position().step);
  summary.class_names = data_.class_names;
  summary.cuda_graph = loop_->recorder().is_graph();
  WriteResults(config_, data_, world_, console_, kept_);
}

}  // namespace ddprun
