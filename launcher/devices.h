// SPDX-License-Identifier: Apache-2.0
// What this node has for its workers: CPUs and GPUs, and how many workers that makes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/gpus.h"
#include "launcher/options.h"
#include "launcher/placement.h"
#include "launcher/topology.h"

namespace ddprun {

// NVIDIA devices that this machine shows: /dev/nvidia0 and so on, else /proc/driver/nvidia/gpus. No
// CUDA is needed.
int CountGpuDevices();

// The same devices with their ids and NUMA nodes, from /proc/driver/nvidia/gpus and /sys below
// `root` ("" for this machine). Where these say nothing of one, its node is -1.
std::vector<Gpu> ReadGpus(const std::string& root, int devices);

// CPUs that this process may run on.
CpuSet AllowedCpus();

// Physical cores among these CPUs, by /sys below `root`; where that says nothing each CPU is one.
int CountCores(const std::string& root, const CpuSet& cpus);

// The number for --nproc-per-node. NOT_FOUND: gpu was asked for and there is none.
absl::StatusOr<int> LocalWorldSize(const Options& options, int gpus, int cpus);

// This machine, as far as these options ask about it. NOT_FOUND, UNAVAILABLE: --numa-binding needs
// more than can be known here; one sentence for people.
absl::StatusOr<Machine> ReadMachine(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
