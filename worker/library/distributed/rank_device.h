// SPDX-License-Identifier: Apache-2.0
// Chooses the device of a rank and the backend of all ranks' collectives, from the settings and the
// hardware. Pure.
#pragma once

#include <string>
#include <vector>

#include "ddprun/detail/choices.h"
#include "proto/worker_env.h"

namespace ddprun {

// The CUDA devices that this process sees.
struct CudaDevices {
  int shown = 0;                     // by the driver
  std::vector<std::string> uuids{};  // of those that LibTorch can use
  std::string problem{};  // why they are fewer than the driver shows, or why that shows none: a
                          // clause with a next move
};

struct RankDevice {
  int cuda = -1;     // its number among this process's; -1: the CPU
  std::string uuid;  // of it
  std::string note;  // one line for the user, if this is not what a user would expect
  bool operator==(const RankDevice&) const = default;
};

// Automatically a GPU if LibTorch can use one, else the CPU; the local rank chooses among several.
// Never the CPU without a note where a driver is installed. Throws std::runtime_error with one
// sentence if the settings cannot be met.
RankDevice ChooseDevice(const WorkerEnv& env, BackendChoice backend, DeviceChoice device,
                        const CudaDevices& devices);

// What the other ranks need to know of a rank's choice.
struct DeviceOffer {
  BackendChoice backend = BackendChoice::kAuto;  // the setting
  std::string uuid;                              // empty: the CPU
  std::string note;                              // RankDevice's
};
// For the store: "auto GPU-... NOTE".
std::string ToText(const DeviceOffer& offer);
DeviceOffer ParseOffer(const std::string& text);

struct GroupBackend {
  bool nccl = false;
  std::string note;  // as RankDevice's
};

// By the offers of all ranks, in their order. NCCL where each has a GPU of its own, whatever
// numbers these have in the ranks' processes; else Gloo, also for ranks that share a GPU, since
// NCCL rejects two ranks on one device. Throws std::runtime_error with one sentence for all ranks
// if some would train on a CPU and others on a GPU, if their settings contradict each other, or if
// NCCL is asked for and cannot be.
GroupBackend ChooseBackend(const std::vector<DeviceOffer>& ranks);

}  // namespace ddprun
