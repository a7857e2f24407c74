// SPDX-License-Identifier: Apache-2.0
// Copies of a training's state on its device, one before each of the latest steps. A GPU is some
// steps behind the host: when a round ends in the middle of a collective, the steps that are queued
// behind it change the state by numbers of no use. So the state after the latest step that was
// complete before comes from a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/train/replicas/tensor_copy.h"
#include "worker/train/step/step_counter.h"
#include "worker/train/step/training_plan.h"

namespace ddprun {

class RecentStates {
 public:
  // What belongs to a state and is the host's.
  struct Host {
    TrainingPlace place;
    StepCounter::Counts counts;
  };

  // `tensors`, all on one device, are the state. The host queues at most `copies` steps beyond the
  // latest that is known to be complete.
  RecentStates(const std::vector<at::Tensor>& tensors, std::size_t copies);

  // Before a step is queued: copies the state which the steps up to `now.place` lead to. Does not
  // wait for the device.
  void Keep(const Host& now);

  // `ended` is the latest step since the first Keep() that is complete, or 0. The tensors become
  // the state after it, or else after the first Keep(), by work that is queued on the device: what
  // was queued before must have ended. Returns what belongs to it; nothing if that is what the
  // tensors have: no other step was queued.
  std::optional<Host> GoBackTo(std::int64_t ended);

 private:
  struct Copy {
    std::optional<Host> host;  // empty: not used yet
    TensorCopy values;
  };

  static std::int64_t StepOf(const Host& host) { return host.place.position.step; }

  const std::vector<at::Tensor> state_;  // sorted by type, so that few kernels copy it
  std::vector<Copy> copies_;
  std::size_t next_ = 0;
  std::int64_t first_ = -1;   // the step of the first Keep(); -1: there was none
  std::int64_t queued_ = -1;  // the latest step that was queued
};

}  // namespace ddprun
