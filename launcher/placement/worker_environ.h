// SPDX-License-Identifier: Apache-2.0
// The environment of a worker: all that ddprun itself was started with, and what makes it rank r of
// n.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "proto/worker_env.h"

namespace ddprun {

// `inherited`: NAME=VALUE. What an outer ddprun or torchrun has set for its own workers is replaced
// or left out. What `place` has for the worker comes next: its GPUs, LOCAL_RANK=0 if that is asked
// for, and OMP_NUM_THREADS where that is not set. Then `network`, NAME=VALUE, and
// TORCH_NCCL_ASYNC_ERROR_HANDLING=1 where it is not set.
std::vector<std::string> WorkerEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place,
                                       const std::vector<std::string>& network);

// This process's own variables.
std::vector<std::string> OwnEnviron();

}  // namespace ddprun
