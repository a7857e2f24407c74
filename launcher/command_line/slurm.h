// SPDX-License-Identifier: Apache-2.0
// What Slurm's variables say about this process's job. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// One task of a job step of several: `srun ddprun ...`, where each task is a node of one run.
struct SlurmStep {
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr;  // the host of the first task
  int master_port = 0;      // the same for all tasks of the step, another one for other steps
  std::string run_id;
};

// Absent: this is no job step, or one of a single task, or its variables cannot be read.
std::optional<SlurmStep> ReadSlurmStep(const GetVariable& get_variable);

// What the flags leave open, as the step says: without --nnodes, an endpoint or a rank each task is
// a node of one run; with --nnodes of as many nodes as there are tasks, what is missing of the rank
// and the address. --standalone, --nnodes 1 and -H are left alone.
void FollowSlurmStep(const GetVariable& get_variable, const Reader& reader, Options& options);

// The hosts of the allocation that this process is in. FAILED_PRECONDITION: it is in none.
absl::StatusOr<std::vector<HostEntry>> ReadSlurmAllocation(const GetVariable& get_variable);

}  // namespace ddprun
