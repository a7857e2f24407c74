// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "worker/train/loader/sample_log.h"
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// --log-samples: which images each step is made of.
class SampleObserver : public Observer {
 public:
  // Both must outlive the observer.
  SampleObserver(const Config& config, const World& world) : config_(config), world_(world) {}

  void OnBegin(const TrainingState& state) override {
    log_.emplace(SampleLog::Options{.output_dir = config_.output_dir,
                                    .rank = world_.rank(),
                                    .world_size = world_.size(),
                                    .steps = state.position().step});
  }

  void OnGoBack(const TrainingState& state) override { OnBegin(state); }

  void OnStepBegin(const TrainingState& state, const EpochPlan& epoch,
                   const StepBatches& batches) override {
    for (std::int64_t i = 0; i < batches.count; ++i)
      log_->Add(state.position().step + 1, state.position().epoch + 1,
                epoch.Samples(batches.first + i));
  }

 private:
  const Config& config_;
  const World& world_;
  std::optional<SampleLog> log_;
};

}  // namespace

std::unique_ptr<Observer> MakeSampleObserver(const Config& config, const World& world) {
  return std::make_unique<SampleObserver>(config, world);
}

}  // namespace ddprun
