// SPDX-License-Identifier: Apache-2.0
#include "worker/distributed/nccl_settings.h"

namespace ddprun {
namespace {

struct Default {
  const char* name;
  const char* former_name;  // null: it has none
  const char* value;
};

// torch/csrc/distributed/c10d/ProcessGroupNCCL.{hpp,cpp} of 2.11.
constexpr Default kDefaults[] = {
    // The watchdog aborts the communicators before it ends the process; without (3, the default) a
    // kernel that waits for a peer keeps the GPU busy until the driver has cleared the process
    // away.
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING", "1"},
    // Four times as long it sleeps between a collective's timeout and the end of the process, for
    // the flight recorders to be written: 60 s by default.
    {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", nullptr, "1000"},
    // For a watchdog that is stuck in a call of CUDA's: 480 s by default. Loading a large module
    // takes seconds.
    {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", nullptr, "120"},
};

}  // namespace

std::vector<std::pair<std::string, std::string>> NcclDefaults(const GetEnv& get_env) {
  std::vector<std::pair<std::string, std::string>> missing;
  for (const Default& variable : kDefaults) {
    if (get_env(variable.name)) continue;
    if (variable.former_name != nullptr && get_env(variable.former_name)) continue;
    missing.emplace_back(variable.name, variable.value);
  }
  return missing;
}

}  // namespace ddprun
