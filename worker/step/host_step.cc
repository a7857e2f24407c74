// SPDX-License-Identifier: Apache-2.0
#include "worker/step/host_step.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "worker/optimizer/gradient_clip.h"

namespace ddprun {

void HostStep::BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) {
  plan_ = &plan;
  loader_.emplace(*parts_.data.train, plan, LoaderOptionsOf(parts_.config, parts_.world, epoch));
}

TrainingStep::Result HostStep::Make(const StepBatches& batches, double rate) {
  const StepShares shares = SharesOf(*plan_, batches, parts_.strategy.shard().world_size);
  const at::Device device = parts_.world.device();
  Result result{.samples = shares.samples, .own_samples = shares.OwnSum()};
  for (std::int64_t i = 0; i < batches.count; ++i) {
    parts_.enter(StepSection::kData);
    const auto batch = loader_->Next();
    TORCH_INTERNAL_ASSERT(batch.has_value());  // the loader has the plan's number of batches
    result.data_wait_seconds += batch->waited_seconds;
    const double weight = shares.weights[static_cast<std::size_t>(i)];
    const at::Tensor loss =
        parts_.strategy.Run({.images = batch->images.to(device, /*non_blocking=*/true),
                             .labels = batch->labels.to(device, /*non_blocking=*/true),
                             .weight = weight},
                            parts_.scaler.scale(), /*first=*/i == 0,
                            /*last=*/i + 1 == batches.count);
    const at::Tensor share = weight == 1 ? loss : loss * weight;
    result.loss = i == 0 ? share : result.loss + share;
  }
  parts_.on_loss(result.loss);
  parts_.enter(StepSection::kOptimizer);
  ApplyGradients(rate);
  return result;
}

// With fp16 an overflow leaves a step out.
void HostStep::ApplyGradients(double rate) {
  const bool clips = parts_.config.clip_norm > 0;
  const std::vector<at::Tensor> gradients =
      parts_.scaler.enabled() || clips ? GradientsOf(parts_.parameters) : std::vector<at::Tensor>{};
  if (parts_.scaler.enabled()) {
    const bool finite = parts_.strategy.SumOverModel(parts_.scaler.Unscale(gradients) ? 0 : 1) == 0;
    parts_.scaler.Update(finite);
    if (!finite) return;
  }
  if (clips) {
    gradient_norm_ = std::sqrt(parts_.strategy.SumOverModel(SquaredNorm(gradients)));
    ClipToNorm(gradients, gradient_norm_, parts_.config.clip_norm);
  }
  parts_.before_update();
  parts_.optimizer.Step(rate);
  if (parts_.average != nullptr) parts_.average->Update();
}

}  // namespace ddprun
