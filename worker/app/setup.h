// SPDX-License-Identifier: Apache-2.0
// Set-up shared by the commands that run as a rank.
#pragma once

#include "proto/worker_env.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/metrics/console.h"

namespace ddprun {

// Divides the node's cores among its ranks, unless OMP_NUM_THREADS is set (ddprun and torchrun set
// it).
void ShareCores(int local_world_size);

Console::Options ConsoleOptions(const WorkerEnv& env);

// What must be equal on all ranks that join: the version of this program, the shared settings, and
// the sizes of the data set, of which each host may have its own copy.
SharedFacts FactsOf(const Config& config, const Dataset& data);

// How this rank joins the others. Throws std::invalid_argument.
World::Options WorldOptions(const Config& config);

// The data set that `config` names. Throws as OpenDataset() does.
Dataset OpenDataset(const Config& config);

}  // namespace ddprun
