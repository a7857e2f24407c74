// SPDX-License-Identifier: Apache-2.0
// Chooses the device of a rank and the backend of its collectives, from the settings and the
// hardware. Pure.
#pragma once

#include <string>

#include "proto/worker_env.h"
#include "worker/config/choices.h"

namespace ddprun {

struct RankDevice {
  int cuda = -1;  // its number among this process's; -1: the CPU
  bool nccl = false;
  std::string note;  // one line for a person, where it is not what he may expect
  bool operator==(const RankDevice&) const = default;
};

// `devices` is how many CUDA devices this process sees. Automatically the GPUs are taken where each
// rank of the node has one, else the CPU; with kCuda ranks share them if need be, and Gloo reduces,
// as NCCL refuses two ranks on one device. Throws std::runtime_error with one sentence where it
// cannot be as asked.
RankDevice ChooseDevice(const WorkerEnv& env, BackendChoice backend, DeviceChoice device,
                        int devices);

}  // namespace ddprun
