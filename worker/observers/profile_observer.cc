// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/profile_observer.h"

#include <filesystem>
#include <string>

namespace ddprun {

void ProfileObserver::OnBegin(const TrainingState&) {
  if (config_.profile) {
    profiler_.emplace(
        world_, clock_,
        Profiler::Options{.first_step = config_.profile_first_step,
                          .steps = config_.profile_steps,
                          .file = std::filesystem::path(config_.output_dir) / kTraceFileName,
                          .report = [this](const auto& text) { console_.Line(text); }});
  }
  ShowSectionsInNvtx(world_, clock_);
}

void ProfileObserver::OnStepBegin(const TrainingState& state, const EpochPlan&,
                                  const StepBatches&) {
  if (profiler_) profiler_->BeginStep(state.position().step + 1);
}

void ProfileObserver::OnStepEnd(const TrainingState& state, const StepEvent&) {
  if (profiler_) profiler_->EndStep(state.position().step);
}

void ProfileObserver::OnEnd() {
  if (!profiler_) return;
  profiler_->Finish();
  const auto ranks = GatherTimes(world_, counter_.Now().sections);
  if (world_.rank() == 0) console_.Line(TimeTable(ranks));
}

}  // namespace ddprun
