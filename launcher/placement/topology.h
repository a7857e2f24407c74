// SPDX-License-Identifier: Apache-2.0
// The topology of this machine's CPUs, as far as binding workers needs it: caches, physical cores,
// NUMA nodes and sockets, as hwloc reports them. Tests use hwloc's own variables to describe other
// machines (HWLOC_SYNTHETIC, HWLOC_XMLFILE, HWLOC_FSROOT).
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

struct Cpu {
  int id = 0;       // the kernel's number, as in taskset and /proc/cpuinfo
  int core = 0;     // the lowest CPU of its physical core
  int cache = -1;   // the lowest CPU of those with the same last-level cache; -1: not known
  int node = 0;     // its NUMA node
  int package = 0;  // its socket
  bool operator==(const Cpu&) const = default;
};

// Those that this process may run on, ascending by id.
using Topology = std::vector<Cpu>;

// Numbers of CPUs, ascending.
using CpuSet = std::vector<int>;

// The topology of the `allowed` CPUs. hwloc is loaded for the call and unloaded after it: a ddprun
// that binds nothing neither loads nor needs it. NOT_FOUND: it is not installed; UNAVAILABLE: it
// cannot read this machine. One sentence for people, after "--numa-binding needs".
absl::StatusOr<Topology> ReadTopology(const CpuSet& allowed);

}  // namespace ddprun
