// SPDX-License-Identifier: Apache-2.0
// Determines what starts the ranks: a launcher, variables set by hand or from a file (--env-file),
// or ddprun on this machine, when --world-size asks for several ranks and nothing has started them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/worker_env.h"
#include "worker/train/config/config.h"

namespace ddprun {

// Sets the variables of an .env file that are not set yet, except DDPRUN_TOKEN, which workers must
// not have. Call before the first thread starts. Throws UsageError with the file and the line.
void SetVariablesOfFile(const std::string& path);

// The consequence of --world-size. Pure.
struct LaunchPlan {
  bool spawn = false;            // execute ddprun, which starts the ranks
  bool sets_world_size = false;  // RANK is set and WORLD_SIZE is not: this is WORLD_SIZE
};

// `get_env` returns variables that are set and not empty. Throws UsageError if WORLD_SIZE, mpirun
// or srun specifies another number.
LaunchPlan PlanLaunch(std::optional<std::int64_t> world_size, const GetEnv& get_env);

// Reads --env-file and applies --world-size. Returns the environment of this rank, or executes the
// ddprun beside this program with `arguments` and does not return. Throws UsageError, and
// std::runtime_error for an invalid environment.
WorkerEnv Launch(const Config& config, const std::vector<std::string>& arguments);

}  // namespace ddprun
