// SPDX-License-Identifier: Apache-2.0
// --check-replicas: finds a rank whose memory was damaged, since its parameters or optimizer state
// are not those of the others, and undoes the damage. What is found has gone into the parameters of
// all ranks by the damaged one's gradients, so all of them go back to what was alike at the check
// before, and make the steps since then again (replicas/REPLICAS.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/metrics/console.h"
#include "worker/train/replicas/judgement.h"
#include "worker/train/replicas/tensor_sums.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/step_recorder.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/round_start.h"

namespace ddprun {

// A check has found damage: all ranks throw it. GoBack() is the next that they do together.
struct ReplicasDiffer {};

// Compares the ranks before anything of them is used elsewhere: an evaluation, a checkpoint, the
// end of an epoch. Without --check-replicas each method does nothing. Check() and GoBack()
// communicate: all ranks must call them.
class ReplicaCheck : public Observer {
 public:
  // In a row, from one place of the training; damage that comes so often is no accident.
  static constexpr int kRepeatsMax = 8;

  // All must outlive this object. `kept` has parts.
  ReplicaCheck(const Config& config, World& world, Console& console, KeptTraining& kept,
               StepRecorder& recorder);

  void OnStepBegin(const TrainingState& state, const EpochPlan&, const StepBatches&) override;
  void BeforeUpdate() override;
  void AfterStep(const TrainingState& state) override;
  void BeforeRead(const TrainingState& state) override { Check(state.place); }

  // The loss of `step` is not finite. True if that may be damage, which the next check finds, and
  // the training goes on; false if it came again after a repeat.
  bool MayBeDamage(std::int64_t step);
  // Compares the ranks, once at each place. Throws ReplicasDiffer; TrainingError if that has been
  // repeated in vain.
  void Check(const TrainingPlace& place);
  // After ReplicasDiffer: parts and counts of `kept` as they were at an earlier place, which
  // `place` becomes. Throws TrainingError if no rank has an undamaged copy.
  void GoBack(TrainingPlace& place);

 private:
  // Steps that are to be repeated, as this rank made them.
  struct Attempt {
    std::int64_t base = 0;  // the place before
    std::int64_t step = 0;  // of the check that has found damage
    std::vector<std::int64_t> sums;
    std::int64_t state = 0;
    std::int64_t not_finite = 0;
    // The first value that did not come out again: that of a step, or at last the state's.
    std::int64_t differs = kNeverDiffered;
  };

  // Whether a check is due after this step.
  bool IsDue(std::int64_t step) const;
  std::int64_t StateSum() const;
  Attempt MadeSinceBase(std::int64_t step) const;
  // Compares `made` before with what the same steps have come to now.
  static std::int64_t FirstDifference(const Attempt& made, const Attempt& now);
  void Agree(const TrainingPlace& place, const Attempt& now, const at::Tensor& rows);
  void Keep(const TrainingPlace& place, std::int64_t sum);
  void KeepOwn(const TrainingPlace& place);
  [[noreturn]] void Differ(const Attempt& now, const Judgement& judgement);
  // From the copy, all that each rank has of its own.
  void RestoreOwn();
  void TakeReceived(const TrainingPlace& place);
  // Damage was found on `ranks`; `fact` and `next` complete the sentence.
  void Name(const std::vector<int>& ranks, const std::string& fact, const std::string& next);
  void Report();
  void Say(const std::string& sentence);

  const Config& config_;
  World& world_;
  Console& console_;
  KeptTraining& kept_;
  StepRecorder& recorder_;
  const bool enabled_;
  const std::vector<at::Tensor> replicated_;
  const std::vector<at::Tensor> buffers_;
  std::optional<StepSums> sums_;

  std::int64_t base_ = -1;         // the steps since this one have sums; -1: none in this world
  bool at_base_ = false;           // no step was made since then
  std::int64_t not_finite_ = 0;    // see ReplicaSums
  std::int64_t real_loss_at_ = 0;  // the step whose loss, if it is not finite again, is real
  int repeats_ = 0;                // since the latest agreement
  std::vector<Attempt> attempts_;  // that do not show yet which rank was damaged
  std::vector<int> odd_;           // found by the latest check
  std::string found_;              // what it has found, as a sentence or of those ranks
};

}  // namespace ddprun
