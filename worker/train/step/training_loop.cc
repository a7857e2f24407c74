// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/training_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/library/base/step_seed.h"
#include "worker/train/optimizer/gradient_clip.h"

namespace ddprun {
namespace {

// Where all batches of a step are loaded before it is made.
constexpr auto kLoaded = [](std::int64_t) {};

std::vector<at::Tensor> GradientsOf(const NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace

TrainingLoop::TrainingLoop(const Config& config, const LoopParts& parts,
                           std::unique_ptr<BatchFeed> feed, std::unique_ptr<StepRecorder> recorder)
    : config_(config),
      parts_(parts),
      parameters_(parts.strategy.Parameters()),
      feed_(std::move(feed)),
      recorder_(std::move(recorder)),
      rate_(RateOn(parts.world.device(), 0)) {}

void TrainingLoop::TrainEpoch(TrainingState& state, ImageModel& model) {
  const EpochPlan epoch = state.BeginEpoch(parts_.strategy.shard());
  parts_.observers.Notify(&Observer::OnEpochBegin);
  BeginEpoch(epoch);
  StepBatches batches;
  for (; batches.first < epoch.batches() && !state.Done(); batches.first += batches.count) {
    batches.count = std::min(config_.accumulate, epoch.batches() - batches.first);
    const std::int64_t number = state.position().step + 1;
    parts_.world.CheckRound();
    parts_.observers.Notify(&Observer::OnStepBegin, state, epoch, batches);
    recorder_->UseForward(model.Advance(state.PlannedEpochs()));
    SeedStep(parts_.world.device(), config_.seed, number, parts_.world.rank());
    const StepResult result = MakeStep(batches, state.LearningRate(), number);
    state.EndStep(epoch, batches.first + batches.count - 1);
    // Where an evaluation is due, it belongs to the step.
    parts_.observers.Notify(&Observer::OnStepEnd, state, result);
    state.EndEpochIfConsumed();
    parts_.observers.Notify(&Observer::AfterStep, state);
  }
}

void TrainingLoop::BeginEpoch(const EpochPlan& plan) {
  plan_ = &plan;
  feed_->BeginEpoch(plan);
}

StepResult TrainingLoop::MakeStep(const StepBatches& batches, double rate, std::int64_t number) {
  const StepShares shares = SharesOf(*plan_, batches, config_.accumulate);
  StepResult result{.samples = shares.samples, .own_samples = shares.own_samples};
  const auto load = [&](std::int64_t i) {
    parts_.observers.OnSection(StepSection::kData);
    result.data_wait_seconds += feed_->Load(i);
  };
  feed_->BeginStep(batches, shares.own);
  rate_.fill_(rate);
  if (parts_.casts != nullptr) parts_.casts->RefreshIfChanged();
  if (shares.full && recorder_->IsReplayed()) {
    for (std::int64_t i = 0; i < batches.count; ++i) load(i);
    if (!recorder_->is_graph())
      recorder_->Record([this, shares] { return ForwardBackwardUpdate(shares, kLoaded); });
    parts_.observers.OnSection(StepSection::kForward);
    const StepOutcome outcome = recorder_->Replay();
    result.gradient_norm = outcome.gradient_norm;
    result.loss = outcome.loss.clone();  // the next replay writes there again
  } else {
    const StepOutcome outcome = ForwardBackwardUpdate(shares, load);
    result.gradient_norm = outcome.gradient_norm;
    result.loss = outcome.loss;
    if (shares.full) recorder_->CountQueued();
  }
  recorder_->EndStep(number);
  return result;
}

StepOutcome TrainingLoop::ForwardBackwardUpdate(const StepShares& shares,
                                                const std::function<void(std::int64_t)>& load) {
  StepOutcome outcome;
  const auto count = static_cast<std::int64_t>(shares.own.size());
  for (std::int64_t i = 0; i < count; ++i) {
    load(i);
    const BatchFeed::Images batch = feed_->Get(i);
    const double weight = shares.weights[static_cast<std::size_t>(i)];
    // The last backward averages the gradients over the ranks while it runs: data_parallel.cc.
    const at::Tensor loss = parts_.strategy.ForwardBackward({.images = batch.images,
                                                             .labels = batch.labels,
                                                             .weight = weight,
                                                             .scale = parts_.scaler.scale()},
                                                            /*first=*/i == 0,
                                                            /*last=*/i + 1 == count);
    if (parts_.casts != nullptr) parts_.casts->GatherGradients();
    const at::Tensor share = weight == 1 ? loss : loss * weight;
    outcome.loss = i == 0 ? share : outcome.loss + share;
  }
  parts_.observers.Notify(&Observer::OnLoss, outcome.loss);
  parts_.observers.OnSection(StepSection::kOptimizer);
  Update(outcome);
  return outcome;
}

// With fp16 an overflow on any rank skips the step.
void TrainingLoop::Update(StepOutcome& outcome) {
  const std::vector<at::Tensor> gradients = GradientsOf(parameters_);
  at::Tensor overflow = parts_.scaler.Unscale(gradients);
  if (overflow.defined()) {
    parts_.strategy.SumOverModel(overflow);
    overflow.clamp_max_(1);
  }
  if (config_.clip_norm > 0) {
    const at::Tensor squared = SquaredNorm(gradients, parts_.world.device());
    parts_.strategy.SumOverModel(squared);
    outcome.gradient_norm = squared.sqrt();
    ClipToNorm(gradients, outcome.gradient_norm, config_.clip_norm);
  }
  parts_.observers.Notify(&Observer::BeforeUpdate);
  parts_.optimizer.Step(rate_, overflow);
  if (parts_.casts != nullptr) parts_.casts->AfterStep();
  parts_.scaler.Update();
  if (parts_.average != nullptr) parts_.average->Update(overflow);
}

}  // namespace ddprun
