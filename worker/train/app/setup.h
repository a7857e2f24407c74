// SPDX-License-Identifier: Apache-2.0
// Set-up shared by the commands that run as a rank.
#pragma once

#include "ddprun/world.h"
#include "proto/worker_env.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"

namespace ddprun {

// Before anything else of a command that runs as a rank. Loads what a GPU needs, if `config` and
// the machine have use for one: ATen must not be asked about CUDA before. Divides the node's cores
// among its ranks, unless OMP_NUM_THREADS is set (ddprun and torchrun set it).
void PrepareRank(const Config& config, const WorkerEnv& env);

// For a training, after PrepareRank(): what LibTorch and the accelerator are to compute with.
void ChooseKernels(const Config& config);

Console::Options ConsoleOptions(const WorkerEnv& env);

// What must be equal on all ranks that join: the version of this program, the shared settings, and
// the sizes of the data set, of which each host may have its own copy.
SharedFacts FactsOf(const Config& config, const Dataset& data);

// How this rank joins the others. Throws std::invalid_argument.
World::Options WorldOptions(const Config& config);

// The data set that `config` names. Throws as OpenDataset() does.
Dataset OpenDataset(const Config& config);

}  // namespace ddprun
