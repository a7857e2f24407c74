// SPDX-License-Identifier: Apache-2.0
// Reads the variables that Slurm and other schedulers set for this process. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// A task of a job step with several tasks: `srun ddprun ...`, where each task is a node of one run.
struct SlurmStep {
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr;  // the host of the first task
  int master_port = 0;      // the same for all tasks of the step, different for other steps
  std::string run_id;
};

// Absent: no job step, a step of a single task, or variables that cannot be parsed.
std::optional<SlurmStep> ReadSlurmStep(const GetVariable& get_variable);

// Completes the options from the step: without --nnodes, endpoint and rank, each task becomes a
// node of one run; with --nnodes equal to the number of tasks, a missing rank and address are
// added.
// --standalone, --nnodes 1 and -H are not changed.
void FollowSlurmStep(const GetVariable& get_variable, const Reader& reader, Options& options);

// The hosts of this process's allocation. FAILED_PRECONDITION: it is in none.
absl::StatusOr<std::vector<HostEntry>> ReadSlurmAllocation(const GetVariable& get_variable);

// A warning if a scheduler's variables state more nodes than the command line: this node would
// silently train alone. --standalone suppresses it.
std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable);

// A warning if this node waits for the other tasks of an interactive step (`srun -n8 --pty bash`),
// in whose shells nobody starts ddprun.
std::string InteractiveStepWarning(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
