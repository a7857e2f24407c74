// SPDX-License-Identifier: Apache-2.0
// Assigns CPUs, memory, threads and GPUs to the workers of this node. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/topology.h"

namespace ddprun {

// The properties of the machine.
struct Machine {
  int cpus = 1;                     // that this process may run on
  int cores = 1;                    // physical ones among them
  std::optional<double> cpu_quota;  // in CPUs; absent: no quota
  std::vector<Gpu> gpus;            // all of one kind; ids and nodes only if needed
  DeviceKind device_kind = DeviceKind::kNvidia;
  std::optional<std::string> visible_devices;  // the value of their variable
  Topology topology;                           // only with --numa-binding
};

// Where one worker runs.
struct Place {
  CpuSet cpus;                                   // empty: not bound
  std::vector<int> memory_nodes;                 // empty: not bound
  int threads = 0;                               // for OMP_NUM_THREADS; 0: not set
  std::optional<std::string> visible_devices;    // absent: as for ddprun
  DeviceKind device_kind = DeviceKind::kNvidia;  // of these
  bool local_rank_is_zero = false;               // for --virtual-local-rank
  int program = 0;                               // of SectionsOf(options): which one it runs
  bool operator==(const Place&) const = default;
};

// One for each worker, by local rank; its size is the number of workers. NOT_FOUND,
// FAILED_PRECONDITION: the machine does not have what is asked for; one sentence for people.
absl::StatusOr<std::vector<Place>> PlaceWorkers(const Options& options, const Machine& machine);

}  // namespace ddprun
