// SPDX-License-Identifier: Apache-2.0
// Finds the CUDA devices that this process can use, and agrees with the other ranks on a backend.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "ddprun/detail/choices.h"
#include "ddprun/world.h"
#include "proto/worker_env.h"
#include "worker/library/distributed/rank_device.h"

namespace ddprun {

// Loads LibTorch's CUDA library only if the settings allow a GPU and the driver shows one. A
// command calls it before its first use of ATen (see LoadAccelerator()); World::Join() calls it
// again and finds the same.
CudaDevices FindCudaDevices(BackendChoice backend, DeviceChoice device);

// What this rank trains on.
struct AgreedDevice {
  int cuda = -1;  // its number among this process's; -1: the CPU
  bool nccl = false;
  std::string note;  // one line for the user, if this is not what a user would expect
};

// All ranks must call it, after the roll call. `own` is this rank's choice, `backend` its setting.
// Throws as ChooseBackend() does, the same on every rank.
AgreedDevice AgreeOnBackend(c10d::Store& store, const WorkerEnv& env, BackendChoice backend,
                            const RankDevice& own);

// The world's note, if it has one, on rank 0's standard error.
void PrintDeviceNote(const World& world);

}  // namespace ddprun
