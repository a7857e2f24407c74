// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "worker/config/config.h"
#include "worker/distributed/world.h"
#include "worker/metrics/console.h"
#include "worker/observers/observer.h"
#include "worker/profile/profiler.h"
#include "worker/step/step_counter.h"

namespace ddprun {

// --profile: a trace of some steps, and at the end the table of where the time went. Always: the
// sections as NVTX ranges.
class ProfileObserver : public Observer {
 public:
  // All must outlive the observer.
  ProfileObserver(const Config& config, World& world, Console& console, StepClock& clock,
                  const StepCounter& counter)
      : config_(config), world_(world), console_(console), clock_(clock), counter_(counter) {}

  void OnBegin(const TrainingState& state) override;
  void OnStepBegin(const TrainingState& state, const EpochPlan& epoch,
                   const StepBatches& batches) override;
  void OnStepEnd(const TrainingState& state, const StepEvent& event) override;
  void OnEnd() override;

 private:
  const Config& config_;
  World& world_;
  Console& console_;
  StepClock& clock_;
  const StepCounter& counter_;
  std::optional<Profiler> profiler_;
};

}  // namespace ddprun
