// SPDX-License-Identifier: Apache-2.0
// Which CPUs each worker of a node is bound to: torchrun's --numa-binding with torchrun's meanings.
// Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "launcher/placement/topology.h"

namespace ddprun {

struct BoundWorker {
  CpuSet cpus;
  std::vector<int> nodes;  // where its memory should come from, ascending
  int cores = 1;           // its share of the physical cores among these CPUs
  bool operator==(const BoundWorker&) const = default;
};

// One for each of `workers` local ranks. `seats[r]` is the NUMA node of local rank r's GPU; there
// may be more seats than workers, as torchrun divides a node among all the GPUs that it sees. Where
// `seats` is empty there are no GPUs, and workers are spread over the nodes by the cores that these
// have. FAILED_PRECONDITION: this machine does not have what the mode needs; one sentence for
// people.
absl::StatusOr<std::vector<BoundWorker>> BindWorkers(NumaBinding mode, const Topology& topology,
                                                     int workers, std::vector<int> seats);

}  // namespace ddprun
