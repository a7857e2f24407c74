// SPDX-License-Identifier: Apache-2.0
// Defaults for PyTorch's NCCL variables that the user has not set, so that errors end a rank within
// seconds. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/worker_env.h"

namespace ddprun {

struct NcclUse {
  bool step_graphs = false;  // steps of several ranks may be CUDA graphs
  bool kept = false;         // this rank goes on in another round when a peer ends
};

// NAME and VALUE of those to be set. Without those that `get_env` returns under their present or
// former name, except for a launcher's default that train cannot live with.
std::vector<std::pair<std::string, std::string>> NcclDefaults(const GetEnv& get_env,
                                                              const NcclUse& use);

}  // namespace ddprun
