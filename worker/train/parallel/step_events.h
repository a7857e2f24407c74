// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker/train/metrics/step_clock.h"

namespace ddprun {

// What the parallel strategies tell while they make a step.
class StepEvents {
 public:
  virtual ~StepEvents() = default;

  // The rank has entered a section of a step: what a user reads where it hangs. May be called on a
  // thread of backward's while the trainer waits for it.
  virtual void OnSection(StepSection) {}
  // After a step's last forward: buffers do not change any more. A CUDA graph repeats what is
  // queued here.
  virtual void AfterForward() {}
};

inline StepEvents& NoStepEvents() {
  static StepEvents none;
  return none;
}

}  // namespace ddprun
