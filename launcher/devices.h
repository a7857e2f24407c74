// SPDX-License-Identifier: Apache-2.0
// How many workers a node has room for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options.h"

namespace ddprun {

// NVIDIA devices that this machine shows: /dev/nvidia0 and so on, else /proc/driver/nvidia/gpus. No
// CUDA is needed.
int CountGpuDevices();

// CPUs that this process may run on.
int CountCpus();

// Of `devices`, those that CUDA_VISIBLE_DEVICES leaves to a program. Its list ends at the first
// entry below 0, as in CUDA; devices of MIG count one each.
int CountVisibleGpus(int devices, const std::optional<std::string>& cuda_visible_devices);

// The number for --nproc-per-node. NOT_FOUND: gpu was asked for and there is none.
absl::StatusOr<int> LocalWorldSize(const Options& options, int gpus, int cpus);

}  // namespace ddprun
