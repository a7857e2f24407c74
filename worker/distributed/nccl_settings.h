// SPDX-License-Identifier: Apache-2.0
// What PyTorch's NCCL process group is told by variables, where a person has not: errors end a rank
// in seconds. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/worker_env.h"

namespace ddprun {

// NAME and VALUE of those to be set. None that `get_env` answers to, by its present or its former
// name.
std::vector<std::pair<std::string, std::string>> NcclDefaults(const GetEnv& get_env);

}  // namespace ddprun
