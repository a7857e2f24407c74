// SPDX-License-Identifier: Apache-2.0
// The ranks of a node's workers where they have several roles: programs of one run. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "proto/collective.h"
#include "proto/worker_env.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// One for each program, in the order of local ranks.
std::vector<RoleWorkers> RolesOf(const Options& options, const std::vector<Place>& places);

// Whether the service has to know the roles, and the workers' names have to show them.
bool ShowsRoles(const Options& options);

// INVALID_ARGUMENT: the service has assigned no ranks to the roles; one sentence.
absl::Status CheckStart(const Start& start, const Options& options, std::size_t roles);

// The ranks of that worker and where it finds its store: over the whole run, or with --ranks-by
// role in its role.
void SetRanks(const Start& start, const std::vector<RoleWorkers>& roles, bool by_role,
              int local_rank, WorkerEnv& env);

// Tells apart the process groups of roles, which have the same names: group 0 of the role eval
// becomes "eval", group 3 "eval/3".
void AddRole(const std::string& role, CollectivePlace& place);

}  // namespace ddprun
