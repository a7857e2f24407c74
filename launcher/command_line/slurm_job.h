// SPDX-License-Identifier: Apache-2.0
// What Slurm's variables say of the job beside its steps (scheduler_env.h): GPUs, arrays, attempts,
// shells. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// The name of a step's run: "slurm-17.2"; of an array's element "slurm-12_3.2", by the array's
// number; with "-r1" in the first attempt after a requeue, whose steps have the same numbers again.
std::string SlurmRunId(const GetVariable& get_variable, int job, long long step);

// FAILED_PRECONDITION: Slurm gave this job GPUs here, and none of the `devices` of this machine is
// visible, so that programs would train on the CPU without a word. `visible`: the value of
// CUDA_VISIBLE_DEVICES or its like; one that hides all devices is a user's wish, as is
// --nproc-per-node cpu.
absl::Status CheckSlurmGpus(const Options& options, int devices,
                            const std::optional<std::string>& visible,
                            const GetVariable& get_variable);

// A warning if this is a shell on one node of a job with several, which a plain ddprun leaves idle.
std::string IdleNodesWarning(const Options& options, const GetVariable& get_variable);

}  // namespace ddprun
