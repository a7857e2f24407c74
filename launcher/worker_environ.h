// SPDX-License-Identifier: Apache-2.0
// The environment of a worker: all that ddprun itself was started with, and what makes it rank r of
// n.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "proto/worker_env.h"

namespace ddprun {

// `inherited`: NAME=VALUE. What an outer ddprun or torchrun has set for its own workers is replaced
// or left out. OMP_NUM_THREADS, where it is not set and a node has several workers, is their share
// of `cpus`; and TORCH_NCCL_ASYNC_ERROR_HANDLING is 1 where it is not set.
std::vector<std::string> WorkerEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, int cpus);

// This process's own variables.
std::vector<std::string> OwnEnviron();

}  // namespace ddprun
