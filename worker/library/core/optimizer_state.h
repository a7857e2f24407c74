// SPDX-License-Identifier: Apache-2.0
// The state of LibTorch's optimizers as tensors with names:
//   PARAMETER/STATE    0/exp_avg; a parameter's place over all groups
//   groupGROUP/lr      float64
// What a step has not made yet, is not there.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ddprun/zero_redundancy_optimizer.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Throws std::invalid_argument for an optimizer other than SGD, Adam, AdamW, RMSprop and Adagrad.
// The tensors are the optimizer's own, not copies; numbers are copies.
NamedTensors ReadOptimizerState(const torch::optim::Optimizer& optimizer);

// The tensors are copied, to the device of their parameter. Throws std::invalid_argument as above,
// CheckpointError for a name that it does not know.
void WriteOptimizerState(torch::optim::Optimizer& optimizer, const NamedTensors& state);

// Collects all ranks' parts, each parameter with its place among all of them, on rank 0; the other
// ranks get nothing. All ranks must call it.
NamedTensors GatherOptimizerState(ShardedOptimizer& optimizer);
// Each rank takes its part of what all of them have.
void WriteOptimizerState(ShardedOptimizer& optimizer, const NamedTensors& state);

}  // namespace ddprun
