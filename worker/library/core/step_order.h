// SPDX-License-Identifier: Apache-2.0
// Which calls of a Checkpoints may follow each other, and which steps nobody has saved yet. Pure.
#pragma once

#include <optional>

#include "ddprun/detail/training_position.h"

namespace ddprun {

class StepOrder {
 public:
  // Training begins or goes on at `position`.
  void Resume(const TrainingPosition& position);
  // This and what follows throws std::logic_error before Resume(). A step is under way, after which
  // the training will be at `after`.
  void BeginStep(const TrainingPosition& after);
  // Throws std::logic_error if `position` counts no further step, or after Stop().
  void EndStep(const TrainingPosition& position);
  void Finish(const TrainingPosition& position);
  // A signal has ended the training, and it is saved.
  void Stop();

  bool resumed() const { return phase_ != Phase::kSetUp; }
  // Where the training is: after the latest step that has ended.
  const TrainingPosition& position() const { return position_; }
  // Where the training is, a step under way included, unless Finish() or Stop() came after its
  // latest step. Absent: nothing would be lost if it ended now.
  std::optional<TrainingPosition> Unfinished() const;

 private:
  enum class Phase { kSetUp, kResumed, kTraining, kFinished, kStopped };

  void CheckResumed(const char* method) const;

  Phase phase_ = Phase::kSetUp;
  TrainingPosition position_;
  std::optional<TrainingPosition> under_way_;
};

}  // namespace ddprun
