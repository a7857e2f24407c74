// SPDX-License-Identifier: Apache-2.0
// How the CPUs of this machine lie to each other, as far as binding workers needs it. Plain values;
// hwloc_topology finds them out.
#pragma once

#include <vector>

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

}  // namespace ddprun
