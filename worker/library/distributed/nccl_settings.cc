// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/nccl_settings.h"

namespace ddprun {
namespace {

struct Default {
  const char* name;
  const char* former_name;  // null: it has none
  const char* value;
};

// What PyTorch's watchdog does about a collective that has failed or timed out
// (ProcessGroupNCCL.hpp of 2.11): 0 nothing, 1 abort the communicators and end the process, 2 abort
// only, 3 end the process only, which is PyTorch's own default.
constexpr const char* kErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
// Without an abort a kernel that waits for a peer keeps the GPU busy until the driver has cleared
// the process away.
constexpr const char* kAbortAndEnd = "1";
// ncclCommAbort does not return while a CUDA graph lives that has captured collectives of the
// communicator: NCCL waits until the graph has given them back (commDestroySync). The watchdog
// would hang instead of ending the process.
constexpr const char* kEnd = "3";
// A rank that is kept outlives its peers and their communicators: when the round ends it aborts
// them itself.
constexpr const char* kNothing = "0";
// torchrun and ddprun give each worker the value 1, unless the user has set another one.
constexpr const char* kLauncherDefault = kAbortAndEnd;
constexpr const char* kLauncherMark = "TORCHELASTIC_RUN_ID";

constexpr Default kDefaults[] = {
    // Four times as long it sleeps between a collective's timeout and the end of the process, for
    // the flight recorders to be written: 60 s by default.
    {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", nullptr, "1000"},
    // For a watchdog that is stuck in a call of CUDA's: 480 s by default. Loading a large module
    // takes seconds.
    {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", nullptr, "120"},
};

bool IsSet(const Default& variable, const GetEnv& get_env) {
  if (get_env(variable.name)) return true;
  return variable.former_name != nullptr && get_env(variable.former_name).has_value();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> NcclDefaults(const GetEnv& get_env,
                                                              const NcclUse& use) {
  std::vector<std::pair<std::string, std::string>> missing;
  const bool aborts = !use.kept && !use.step_graphs;
  const char* value = aborts ? kAbortAndEnd : use.kept ? kNothing : kEnd;
  const Default error_handling{kErrorHandling, "NCCL_ASYNC_ERROR_HANDLING", value};
  const bool is_launchers = get_env(kLauncherMark) && get_env(kErrorHandling) == kLauncherDefault;
  if (!IsSet(error_handling, get_env) || (is_launchers && !aborts))
    missing.emplace_back(error_handling.name, error_handling.value);
  for (const Default& variable : kDefaults) {
    if (!IsSet(variable, get_env)) missing.emplace_back(variable.name, variable.value);
  }
  return missing;
}

}  // namespace ddprun
