// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/warm_up.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/train/evaluation/evaluate.h"
#include "worker/train/replicas/tensor_copy.h"
#include "worker/train/step/training_plan.h"
#include "worker/train/training/state_view.h"

namespace ddprun {
namespace {

// The forwards from here on, each as the epochs at which it is used.
std::vector<double> ForwardsFrom(const TrainingState& state, const ImageModel& model) {
  const double planned =
      static_cast<double>(state.plan().steps) / static_cast<double>(state.plan().steps_per_epoch);
  std::vector<double> epochs = {state.PlannedEpochs()};
  for (const double change : model.ForwardChanges()) {
    if (change > epochs.front() && change < planned) epochs.push_back(change);
  }
  return epochs;
}

class DummySteps {
 public:
  DummySteps(const Config& config, const Dataset& data, const Shard& shard, TrainingLoop& loop,
             double rate)
      : config_(config),
        options_({.size = data.train->size(),
                  .shard = shard,
                  .batch_size = config.batch_size,
                  .seed = config.seed}),
        loop_(loop),
        rate_(rate) {}

  // Until steps of full batches are as fast as all that follow; then one more of them, and the last
  // of an epoch, whose batch may be smaller.
  void Make() {
    const EpochPlan epoch(options_);
    for (std::int64_t made = 0;
         !loop_.recorder().is_warm() && made < StepRecorder::kWarmUpOfSeveral + 1;)
      made += MakeSome(epoch, StepRecorder::kWarmUpOfSeveral + 1 - made);
    MakeSome(epoch, 1);
    const std::int64_t last = (epoch.batches() - 1) / config_.accumulate * config_.accumulate;
    if (last == 0) return;
    EpochPlan::Options rest = options_;
    rest.consumed = epoch.ConsumedAfter(last - 1);
    MakeSome(EpochPlan(rest), 1);
  }

 private:
  // The epoch's first ones, as many as it has at most. How many they were.
  std::int64_t MakeSome(const EpochPlan& epoch, std::int64_t count) {
    loop_.BeginEpoch(epoch);
    std::int64_t made = 0;
    for (StepBatches batches; made < count && batches.first < epoch.batches();
         batches.first += batches.count, ++made) {
      batches.count = std::min(config_.accumulate, epoch.batches() - batches.first);
      loop_.MakeStep(batches, rate_, StepRecorder::kDummy);
    }
    return made;
  }

  const Config& config_;
  const EpochPlan::Options options_;
  TrainingLoop& loop_;
  const double rate_;
};

}  // namespace

void WarmUp(const Config& config, const Dataset& data, World& world, TrainingParts& parts,
            TrainingLoop& loop, const TrainingState& state) {
  const std::vector<at::Tensor> changed = StateView(parts).UpTo(HeldBy::kItselfOnly);
  const at::Tensor epoch_sums = parts.epoch_sums.Values();
  TensorCopy before;
  before.Keep(changed);
  DummySteps steps(config, data, parts.strategy->shard(), loop, state.LearningRate());
  for (const double epochs : ForwardsFrom(state, *parts.model)) {
    loop.recorder().UseForward(parts.model->Advance(epochs));
    steps.Make();
  }
  loop.recorder().AwaitQueued();
  if (config.eval) {
    parts.strategy->Evaluate();
    WarmUpEvaluation(config, world, *parts.strategy, data);
    parts.strategy->Train();
  }
  before.CopyTo(changed);
  parts.epoch_sums.SetValues(epoch_sums);
  parts.WeightsChanged();
  world.Synchronize();
}

}  // namespace ddprun
