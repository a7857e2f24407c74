// SPDX-License-Identifier: Apache-2.0
// Observers follow the training loop: what is kept, counted, shown, evaluated, checked and saved.
// Each method is called for all observers in their order, and what one throws ends the loop.
// Observers that communicate with other ranks are on all ranks, in one order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/train/loader/step_batches.h"
#include "worker/train/parallel/step_events.h"
#include "worker/train/step/training_state.h"

namespace ddprun {

struct Evaluation;

// What a step has come to.
struct StepResult {
  at::Tensor loss;               // mean over this rank's samples, on the device
  at::Tensor gradient_norm;      // there, until the next step; undefined without --clip-norm
  std::int64_t samples = 0;      // of all ranks
  std::int64_t own_samples = 0;  // of this one
  double data_wait_seconds = 0;
};

class Observer : public StepEvents {
 public:
  // The rank has entered a phase that is no section of a step.
  virtual void OnPhase(const char*) {}

  // The first step comes next.
  virtual void OnBegin(const TrainingState&) {}
  // The training goes on from an earlier step: what was said of later ones does not count.
  virtual void OnGoBack(const TrainingState&) {}
  // The epoch's first step comes next, or the first that is made here.
  virtual void OnEpochBegin() {}

  virtual void OnStepBegin(const TrainingState&, const EpochPlan&, const StepBatches&) {}
  // With a step's loss, before it changes anything: may throw. Not called where a graph is
  // replayed.
  virtual void OnLoss(const at::Tensor& /*loss*/) {}
  // Before parameters, optimizer state or average change on a CPU.
  virtual void BeforeUpdate() {}
  // The step is made, or on a GPU queued; `state` is behind it.
  virtual void OnStepEnd(const TrainingState&, const StepResult&) {}
  // After all that belongs to the step, its evaluation too: the next one may be of the next epoch.
  virtual void AfterStep(const TrainingState&) {}

  // The state is about to be read, by an evaluation or a checkpoint: it must be that of complete
  // steps, and the same on all ranks.
  virtual void BeforeRead(const TrainingState&) {}
  // `last`: after the last step, for the summary.
  virtual void OnEvaluation(const TrainingState&, const Evaluation&, bool /*last*/) {}
  // The training images of `epoch` (counted from 1) as they were trained, over all ranks.
  virtual void OnEpochEnd(const TrainingState&, std::int64_t /*epoch*/, const Evaluation&) {}
  // The last step is made.
  virtual void OnEnd() {}
};

class Observers final : public StepEvents {
 public:
  // The observer must live as long as events come.
  void Add(Observer& observer) { all_.push_back(&observer); }

  // Calls the method of all, in the order in which they were added.
  template <typename Class, typename... Parameters, typename... Arguments>
  void Notify(void (Class::*method)(Parameters...), const Arguments&... arguments) {
    for (Observer* const observer : all_) (observer->*method)(arguments...);
  }

  void OnSection(StepSection section) override {
    if (!sections_hidden_) Notify(&Observer::OnSection, section);
  }
  void AfterForward() override { Notify(&Observer::AfterForward); }

  // Dummy steps report no sections.
  void HideSections(bool hidden) { sections_hidden_ = hidden; }

 private:
  std::vector<Observer*> all_;
  bool sections_hidden_ = false;
};

inline Observers& NoObservers() {
  static Observers none;
  return none;
}

}  // namespace ddprun
