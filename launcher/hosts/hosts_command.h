// SPDX-License-Identifier: Apache-2.0
// `ddprun -H`: the head of a run.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// Reads the hosts (-H, a hostfile or Slurm's variables) and plans. Errors: one sentence for people.
absl::StatusOr<HostsPlan> PlanHosts(const Options& options, const std::string& own_path,
                                    const GetVariable& get_variable);

// Runs the head and returns the exit code. `variable`: the result of TakeTokenVariable().
int RunHosts(const Options& options, const std::string& own_path,
             std::optional<absl::StatusOr<Token>> variable, const GetVariable& get_variable);

}  // namespace ddprun
