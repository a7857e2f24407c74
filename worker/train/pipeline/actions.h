// SPDX-License-Identifier: Apache-2.0
// In which order a stage of a pipeline works on the micro-batches of one batch. Pure functions.
//
// gpipe (Huang et al., "GPipe", 2019): all forward, then all backward; a stage holds the
// activations of all micro-batches. 1f1b (Narayanan et al., "PipeDream", 2019, in its flushing
// form): as soon as the first micro-batch comes back a stage does one backward after each forward;
// it holds those of at most as many micro-batches as there are stages from it to the last. Both end
// with the same gradients: backward takes the micro-batches in ascending order.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/train/config/choices.h"

namespace ddprun {

struct Action {
  enum class Kind {
    kReceiveActivation,  // from the stage before
    kForward,
    kSendActivation,   // to the stage after
    kReceiveGradient,  // from the stage after
    kBackward,
    kSendGradient,  // to the stage before
  };

  Kind kind = Kind::kForward;
  int micro_batch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

// What `stage` of `stages` does, in order. Two neighbours name the transfers between them in the
// same order, so that none waits for the other for ever even where a send ends only when it is
// received (NCCL's order on one stream). To receive may be begun when it is named and ended when
// its tensor is needed.
std::vector<Action> TrainingActions(PipelineSchedule schedule, int stage, int stages,
                                    int micro_batches);

// Forward only.
std::vector<Action> EvaluationActions(int stage, int stages, int micro_batches);

// Sizes of the micro-batches that `samples` make: `micro_batches` that differ by one at most, or
// one for each sample if there are fewer of these.
std::vector<std::int64_t> MicroBatchSizes(std::int64_t samples, int micro_batches);

}  // namespace ddprun
