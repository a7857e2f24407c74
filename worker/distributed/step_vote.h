// SPDX-License-Identifier: Apache-2.0
// Lets all ranks agree on requests of any rank (save, stop) while a step runs: two numbers are
// all-reduced beside the gradients and are there when the step is done, so no rank waits for them.
// All ranks must call it in the same order among their collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "worker/distributed/world.h"

namespace ddprun {

class StepVote {
 public:
  struct Wishes {
    bool save = false;
    int stop = 0;  // number of a signal; the greatest counts
  };

  // On CUDA, where to look at a result is to wait for the device, only every 16th step votes.
  static constexpr std::int64_t kInterval = 16;

  explicit StepVote(World& world);

  // At the beginning of a step.
  void Begin(const Wishes& own);
  // At its end: the same on all ranks. Throws c10::Error if another rank has ended.
  Wishes End();

 private:
  World& world_;
  std::int64_t step_ = 0;
  Wishes own_;
  std::vector<at::Tensor> ballot_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace ddprun
