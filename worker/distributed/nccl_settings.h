// SPDX-License-Identifier: Apache-2.0
// Defaults for PyTorch's NCCL variables that the user has not set, so that errors end a rank within
// seconds. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/worker_env.h"

namespace ddprun {

// NAME and VALUE of those to be set. Without those that `get_env` returns under their present or
// former name, except for a launcher's default that train cannot live with. `step_graphs`: steps of
// several ranks may be CUDA graphs.
std::vector<std::pair<std::string, std::string>> NcclDefaults(const GetEnv& get_env,
                                                              bool step_graphs);

}  // namespace ddprun
