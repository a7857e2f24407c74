// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/step_meter.h"

#include <cmath>

#include "worker/train/observers/checks.h"

namespace ddprun {

StepMeter::StepMeter(const Config& config, World& world, KeptTraining& kept,
                     const TrainingState& state, StepRecorder& recorder, ReplicaCheck& replicas)
    : config_(config),
      world_(world),
      kept_(kept),
      state_(state),
      recorder_(recorder),
      replicas_(replicas),
      settled_(world.device().is_cpu()) {}

void StepMeter::EndWarmUp(double seconds) {
  settled_ = true;
  kept_.summary.warm_up_seconds = seconds;
}

void StepMeter::OnSection(StepSection section) {
  kept_.clock.Enter(section);
  world_.ExpectPeersSoon(settled_ && IsWithinStep(section));
}

void StepMeter::OnLoss(const at::Tensor& loss) {
  if (loss.is_cpu()) ReadLoss(loss, state_.position().step + 1);
}

void StepMeter::OnStepEnd(const TrainingState& state, const StepResult& result) {
  kept_.counter.Add(result);
  const bool is_first = kept_.counter.Now().steps == 1;
  if (state.StepIsLogged() || is_first) recorder_.AwaitQueued();
  // Reading a number from a GPU waits for it.
  if (state.StepIsLogged() && !result.loss.is_cpu()) ReadLoss(result.loss, state.position().step);
  if (is_first) {
    world_.Synchronize();
    kept_.summary.CountFirstStep(kept_.start);
    settled_ = true;
  }
  kept_.clock.EndStep();
}

void StepMeter::BeforeRead(const TrainingState&) {
  if (world_.interrupt()) recorder_.AwaitQueued();
}

// A loss that is not finite ends the training before it changes anything. With fp16 the scaler
// skips such a step and lowers its scale, which ends the training when it is below 1. Where a
// rank's memory may be damaged, the step is repeated first.
void StepMeter::ReadLoss(const at::Tensor& loss, std::int64_t step) {
  kept_.counter.Read(world_.ToHost(loss).item<double>());
  const GradScaler& scaler = kept_.parts->scaler;
  const bool too_small = scaler.enabled() && scaler.state().scale < 1;
  const double checked = too_small ? std::nan("") : kept_.counter.loss();
  if (scaler.enabled() && !too_small) return;
  if (std::isfinite(checked) || replicas_.MayBeDamage(step)) return;
  CheckFinite(checked, step, state_.position().epoch + 1, config_, world_);
}

}  // namespace ddprun
