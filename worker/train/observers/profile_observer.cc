// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>
#include <string>

#include "worker/train/observers/make_observers.h"
#include "worker/train/profile/profiler.h"

namespace ddprun {
namespace {

// --profile: a trace of some steps, and at the end the table of where the time went. Always: the
// sections as NVTX ranges.
class ProfileObserver : public Observer {
 public:
  // All must outlive the observer.
  ProfileObserver(const Config& config, World& world, Console& console, StepClock& clock,
                  const StepCounter& counter)
      : config_(config), world_(world), console_(console), clock_(clock), counter_(counter) {}

  void OnBegin(const TrainingState&) override {
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

  void OnStepBegin(const TrainingState& state, const EpochPlan&, const StepBatches&) override {
    if (profiler_) profiler_->BeginStep(state.position().step + 1);
  }

  void OnStepEnd(const TrainingState& state, const StepResult&) override {
    if (profiler_) profiler_->EndStep(state.position().step);
  }

  void OnEnd() override {
    if (!profiler_) return;
    profiler_->Finish();
    const auto ranks = GatherTimes(world_, counter_.Now().sections);
    if (world_.rank() == 0) console_.Line(TimeTable(ranks));
  }

 private:
  const Config& config_;
  World& world_;
  Console& console_;
  StepClock& clock_;
  const StepCounter& counter_;
  std::optional<Profiler> profiler_;
};

}  // namespace

std::unique_ptr<Observer> MakeProfileObserver(const Config& config, World& world, Console& console,
                                              StepClock& clock, const StepCounter& counter) {
  return std::make_unique<ProfileObserver>(config, world, console, clock, counter);
}

}  // namespace ddprun
