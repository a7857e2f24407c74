// SPDX-License-Identifier: Apache-2.0
// Determines what starts the ranks: a launcher, variables set by hand or from a file (--env-file),
// or ddprun on this machine, when --world-size asks for several ranks and nothing has started them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/worker_env.h"
#include "worker/config/config.h"

namespace ddprun {

// Sets the variables of an .env file that are not set yet; a DDPRUN_TOKEN in it is not for workers
// and is left out. Before the first thread. Throws UsageError with the file and the line.
void SetVariablesOfFile(const std::string& path);

// What becomes of --world-size. Pure.
struct LaunchPlan {
  bool spawn = false;            // hand over to ddprun, which starts the ranks
  bool sets_world_size = false;  // RANK is set and WORLD_SIZE is not: this is WORLD_SIZE
};

// `get_env` answers with what is set and not empty. Throws UsageError where WORLD_SIZE, mpirun or
// srun says another number.
LaunchPlan PlanLaunch(std::optional<std::int64_t> world_size, const GetEnv& get_env);

// Reads --env-file and follows --world-size: returns who this process is, or does not return
// because ddprun, which lies beside this program, has taken its place with `arguments`. Throws
// UsageError, and std::runtime_error for an environment that is wrong.
WorkerEnv Launch(const Config& config, const std::vector<std::string>& arguments);

}  // namespace ddprun
