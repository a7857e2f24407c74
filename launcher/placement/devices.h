// SPDX-License-Identifier: Apache-2.0
// What this node has for its workers: CPUs and GPUs, and how many workers that makes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/topology.h"

namespace ddprun {

// In what follows `root` is the folder that /dev, /proc and /sys are in: "" for this machine.

// NVIDIA devices that may be used here: /dev/nvidia0 and so on, else /proc/driver/nvidia/gpus. No
// CUDA is needed.
int CountGpuDevices(const std::string& root);

// The same devices with their ids and NUMA nodes. Where these are not known the node is -1.
std::vector<Gpu> ReadGpus(const std::string& root);

// CPUs that this process may run on.
CpuSet AllowedCpus();

// Physical cores among these CPUs; a CPU whose core is not known counts as a core.
int CountCores(const std::string& root, const CpuSet& cpus);

// The number for --nproc-per-node. NOT_FOUND: gpu was requested and there is none.
absl::StatusOr<int> LocalWorldSize(const Options& options, int gpus, int cpus);

// This machine, as far as these options ask about it. NOT_FOUND, UNAVAILABLE: --numa-binding needs
// more than can be known here; one sentence for people.
absl::StatusOr<Machine> ReadMachine(const Options& options, const GetVariable& get_variable);

// CPUs' worth of time, the least of this process's cgroup and those above it; absent: no limit.
// `root` is the folder that /proc and /sys are in: "" for this machine.
std::optional<double> ReadCpuQuota(const std::string& root);

}  // namespace ddprun
