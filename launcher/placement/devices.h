// SPDX-License-Identifier: Apache-2.0
// The CPUs and GPUs of this node, and the number of its workers.
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

// `root`: the folder of /dev, /proc and /sys; "" for this machine.

// The number of usable NVIDIA devices: /dev/nvidia0 and so on, else /proc/driver/nvidia/gpus. Does
// not need CUDA.
int CountGpuDevices(const std::string& root);

// The same devices with their ids and NUMA nodes; -1: not known.
std::vector<Gpu> ReadGpus(const std::string& root);

// The accelerators for these options, of the first kind of which there are some: what
// --nproc-per-node asks for, else NVIDIA's, AMD's, Intel's, Ascend's. GPUs of the processor count
// only for xpu: a machine that has one would start a single worker with auto.
void FindDevices(const std::string& root, const Options& options, const GetVariable& get_variable,
                 Machine& machine);

// CPUs that this process may run on.
CpuSet AllowedCpus();

// Physical cores among these CPUs; a CPU whose core is not known counts as a core.
int CountCores(const std::string& root, const CpuSet& cpus);

// The number for --nproc-per-node. NOT_FOUND: a device was requested and there is none.
absl::StatusOr<int> LocalWorldSize(const Options& options, int gpus, int cpus);

// The properties of this machine that these options need. NOT_FOUND, UNAVAILABLE: --numa-binding
// needs data that is not available here; one sentence.
absl::StatusOr<Machine> ReadMachine(const Options& options, const GetVariable& get_variable);

// The CPU quota in CPUs, the smallest of this process's cgroup and its ancestors; absent: no limit.
// The list of CPUs does not show it: `docker run --cpus 4` and a Kubernetes limit leave all CPUs of
// the machine visible.
std::optional<double> ReadCpuQuota(const std::string& root);

}  // namespace ddprun
