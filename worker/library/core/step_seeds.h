// SPDX-License-Identifier: Apache-2.0
// The default generators' seeds, which make a step that is repeated draw the same numbers.
#pragma once

#include <ATen/Context.h>

#include <cstdint>
#include <optional>

#include "worker/library/base/step_seed.h"

namespace ddprun {

// The generators are the process's, which may come to Checkpoints::Resume() in several rounds.
class StepSeeds {
 public:
  static StepSeeds& OfProcess() {
    static StepSeeds seeds;
    return seeds;
  }

  // The seed is what the program has given them; absent that, what it was in the round before.
  void Begin() {
    const std::uint64_t now = at::globalContext().defaultGenerator(at::kCPU).current_seed();
    if (now != set_) seed_ = now;
  }
  // For step `step`, counted from 1.
  void Set(at::Device device, std::int64_t step) {
    SeedStep(device, seed_, step, /*rank=*/0);
    set_ = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  }

 private:
  std::uint64_t seed_ = 0;
  std::optional<std::uint64_t> set_;
};

}  // namespace ddprun
