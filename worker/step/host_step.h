// SPDX-License-Identifier: Apache-2.0
// A step that the host leads: it looks at the gradients' norm and at overflows before it goes on.
// On CPUs, and for a model in stages.
#pragma once

#include <optional>

#include "worker/loader/loader.h"
#include "worker/step/training_step.h"

namespace ddprun {

class HostStep : public TrainingStep {
 public:
  explicit HostStep(StepParts parts) : parts_(std::move(parts)) {}

  void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) override;
  Result Make(const StepBatches& batches, double rate) override;
  double gradient_norm() const override { return gradient_norm_; }

 private:
  void ApplyGradients(double rate);

  const StepParts parts_;
  const EpochPlan* plan_ = nullptr;
  std::optional<Loader> loader_;
  double gradient_norm_ = 0;
};

}  // namespace ddprun
