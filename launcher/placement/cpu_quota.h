// SPDX-License-Identifier: Apache-2.0
// How much CPU time a container's cgroup allows, which its list of CPUs does not show: `docker run
// --cpus 4` and a Kubernetes limit leave all CPUs of the machine visible.
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// CPUs' worth of time, the least of this process's cgroup and those above it; absent: no limit.
// `root` is the folder that /proc and /sys are in: "" for this machine.
std::optional<double> ReadCpuQuota(const std::string& root);

}  // namespace ddprun
