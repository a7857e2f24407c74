// SPDX-License-Identifier: Apache-2.0
// `ddprun -H`: from the options to the head's loop.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// Reads what the options name (a hostfile, Slurm's variables) and plans. One sentence for people.
absl::StatusOr<HostsPlan> PlanHosts(const Options& options, const std::string& own_path,
                                    const GetVariable& get_variable);

// The whole of it; the exit code. `variable`: what TakeTokenVariable() gave.
int RunHosts(const Options& options, const std::string& own_path,
             std::optional<absl::StatusOr<Token>> variable, const GetVariable& get_variable);

}  // namespace ddprun
