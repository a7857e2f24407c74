// SPDX-License-Identifier: Apache-2.0
// Set-up shared by the commands that run as a rank.
#pragma once

#include "proto/worker_env.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/metrics/console.h"

namespace ddprun {

// The ranks of a node share its cores. Whoever sets OMP_NUM_THREADS (ddprun and torchrun do) has
// decided already.
void ShareCores(int local_world_size);

Console::Options ConsoleOptions(const WorkerEnv& env);

// What all ranks must have alike, before they join: this program's version, settings, and what the
// data set is like, which a host may have another copy of.
SharedFacts FactsOf(const Config& config, const Dataset& data);

// How this rank joins the others, as `config` has it. Throws std::invalid_argument.
World::Options WorldOptions(const Config& config);

// The data set that `config` names. Throws as OpenDataset() does.
Dataset OpenDataset(const Config& config);

}  // namespace ddprun
