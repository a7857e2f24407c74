// SPDX-License-Identifier: Apache-2.0
// What of the machine each worker of this node gets: CPUs, memory, threads, GPUs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/topology.h"

namespace ddprun {

// What the decision is made from.
struct Machine {
  int cpus = 1;                     // that this process may run on
  int cores = 1;                    // physical ones among them
  std::optional<double> cpu_quota;  // in CPUs, where a container has one
  std::vector<Gpu> gpus;  // all that this machine shows; their ids and nodes only where asked for
  std::optional<std::string> cuda_visible_devices;
  Topology topology;  // only with --numa-binding
};

// Of one worker.
struct Place {
  CpuSet cpus;                                      // empty: not bound
  std::vector<int> memory_nodes;                    // empty: not bound
  int threads = 0;                                  // for OMP_NUM_THREADS; 0: its own affair
  std::optional<std::string> cuda_visible_devices;  // absent: as ddprun's own
  bool local_rank_is_zero = false;                  // for --virtual-local-rank
  bool operator==(const Place&) const = default;
};

// One for each worker, by local rank; its size is the number of workers. NOT_FOUND,
// FAILED_PRECONDITION: the machine does not have what is asked for; one sentence for people.
absl::StatusOr<std::vector<Place>> PlaceWorkers(const Options& options, const Machine& machine);

}  // namespace ddprun
