// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>

#include "ddprun/detail/world_access.h"
#include "proto/progress_message.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// Short enough to be the current rate, long enough for a few steps.
constexpr std::chrono::seconds kRateInterval{1};

// The words that a user reads beside a rank that hangs. A collective's say that it waits for
// others.
const char* WordsOf(StepSection section) {
  static constexpr std::array<const char*, kSections> kWords = {
      "other",      "data",      "forward",  "backward, all_reduce",
      "all_reduce", "optimizer", "evaluate", "checkpoint"};
  return kWords[static_cast<std::size_t>(section)];
}

// Sends to the agent which step this rank is at, what it is doing, how fast it is, and what its
// time was spent on.
class ProgressObserver : public Observer {
 public:
  // All must outlive the observer.
  ProgressObserver(World& world, const StepClock& clock, const StepCounter& counter)
      : world_(world), clock_(clock), counter_(counter) {}

  void OnSection(StepSection section) override { OnPhase(WordsOf(section)); }

  void OnPhase(const char* phase) override {
    ProgressMessage message;
    message.section = phase;
    Send(message);
  }

  void OnBegin(const TrainingState&) override { at_rate_ = counter_.Now(); }

  void OnGoBack(const TrainingState& state) override { OnBegin(state); }

  void OnStepBegin(const TrainingState& state, const EpochPlan&, const StepBatches&) override {
    ProgressMessage message;
    message.step = state.position().step + 1;
    message.steps = state.position().step + state.plan().steps - state.plan_step();
    message.epoch = state.position().epoch + 1;
    message.section = WordsOf(StepSection::kData);
    message.loss = counter_.last_loss();
    const StepCounter::Counts now = counter_.Now();
    const StepCounter::Counts since = now - at_rate_;
    if (since.time >= kRateInterval) {
      message.rate = since.own_images_per_second();
      message.unit = "images";
      if (const at::Device device = world_.device(); device.is_cuda())
        message.gpu_memory = LoadAccelerator().HeldBytes(device.index());
      at_rate_ = now;
    }
    Send(message);
  }

  void OnEvaluation(const TrainingState&, const Evaluation& evaluation, bool) override {
    ProgressMessage message;
    message.accuracy = evaluation.accuracy();
    Send(message);
  }

  void OnStepEnd(const TrainingState&, const StepResult&) override {
    OnSection(StepSection::kOther);
  }

 private:
  void Send(ProgressMessage& message) {
    message.times = clock_.rank_time();
    message.doing = clock_.time_class();
    WorldAccess::Report(world_, message);
  }

  World& world_;
  const StepClock& clock_;
  const StepCounter& counter_;
  StepCounter::Counts at_rate_;  // of the rate that was sent last
};

}  // namespace

std::unique_ptr<Observer> MakeProgressObserver(World& world, const StepClock& clock,
                                               const StepCounter& counter) {
  return std::make_unique<ProgressObserver>(world, clock, counter);
}

}  // namespace ddprun
