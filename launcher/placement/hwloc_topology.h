// SPDX-License-Identifier: Apache-2.0
// The machine's CPUs as hwloc knows them: caches, physical cores, NUMA nodes and sockets on every
// kind of machine, and for tests machines that are not there (HWLOC_SYNTHETIC, HWLOC_XMLFILE,
// HWLOC_FSROOT are its own variables). The library is opened when it is asked for and closed again:
// a ddprun that binds nothing neither loads nor needs it.
#pragma once

#include "absl/status/statusor.h"
#include "launcher/placement/topology.h"

namespace ddprun {

// Of the `allowed` CPUs. NOT_FOUND: hwloc is not installed; UNAVAILABLE: it cannot read this
// machine. One sentence for people, after "--numa-binding needs".
absl::StatusOr<Topology> ReadTopology(const CpuSet& allowed);

}  // namespace ddprun
