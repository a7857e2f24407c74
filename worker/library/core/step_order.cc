// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/step_order.h"

#include <stdexcept>
#include <string>

namespace ddprun {

void StepOrder::CheckResumed(const char* method) const {
  if (phase_ == Phase::kSetUp)
    throw std::logic_error(std::string("Checkpoints::") + method +
                           "() comes after Resume(), which is missing");
}

void StepOrder::Resume(const TrainingPosition& position) {
  phase_ = Phase::kResumed;
  position_ = position;
  under_way_.reset();
}

void StepOrder::BeginStep(const TrainingPosition& after) {
  CheckResumed("Epochs");
  phase_ = Phase::kTraining;
  under_way_ = after;
}

void StepOrder::EndStep(const TrainingPosition& position) {
  CheckResumed("EndStep");
  if (phase_ == Phase::kStopped)
    throw std::logic_error(
        "Checkpoints::EndStep() has returned true, and a signal has asked for the end; return from "
        "the function of Main() then");
  if (position.step <= position_.step)
    throw std::logic_error("Checkpoints::EndStep() got step " + std::to_string(position.step) +
                           " after step " + std::to_string(position_.step) +
                           "; call EpochSampler::Advance() before it, or go through "
                           "Checkpoints::Epochs(), which counts the steps");
  phase_ = Phase::kTraining;
  position_ = position;
  under_way_.reset();
}

void StepOrder::Finish(const TrainingPosition& position) {
  CheckResumed("Finish");
  phase_ = Phase::kFinished;
  position_ = position;
  under_way_.reset();
}

void StepOrder::Stop() {
  phase_ = Phase::kStopped;
  under_way_.reset();
}

std::optional<TrainingPosition> StepOrder::Unfinished() const {
  if (phase_ != Phase::kTraining) return std::nullopt;
  return under_way_ ? *under_way_ : position_;
}

}  // namespace ddprun
