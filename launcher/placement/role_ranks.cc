// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/role_ranks.h"

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr char kWorldGroup[] = "0";

void AddRole(const std::string& role, std::string& group) {
  group = group == kWorldGroup ? role : absl::StrCat(role, "/", group);
  if (group.size() > kCollectiveNameBytesMax) group.resize(kCollectiveNameBytesMax);
}

}  // namespace

std::vector<RoleWorkers> RolesOf(const Options& options, const std::vector<Place>& places) {
  std::vector<RoleWorkers> roles;
  for (const ProgramSection* section : SectionsOf(options))
    roles.push_back({.name = section->role, .workers = 0, .worker_port = 0});
  for (const Place& place : places) ++roles[static_cast<std::size_t>(place.program)].workers;
  return roles;
}

bool ShowsRoles(const Options& options) {
  return options.ranks_by_role || !options.more_programs.empty();
}

absl::Status CheckStart(const Start& start, const Options& options, std::size_t roles) {
  if (!ShowsRoles(options) || start.roles.size() == roles) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the rendezvous service is of an older ddprun, which knows one program in a run; install the "
      "same ddprun on all nodes");
}

void SetRanks(const Start& start, const std::vector<RoleWorkers>& roles, bool by_role,
              int local_rank, WorkerEnv& env) {
  std::size_t index = 0;
  int first = 0;  // local rank of the role's first worker
  while (index + 1 < roles.size() && local_rank >= first + roles[index].workers)
    first += roles[index++].workers;
  RoleRanks role{.rank_first = start.role_rank_first,
                 .world_size = start.role_world_size,
                 .node_rank = start.node_rank,
                 .node_count = start.node_count,
                 .master_addr = start.master_addr,
                 .master_port = start.master_port};
  if (index < start.roles.size()) role = start.roles[index];
  env.role = roles[index].name;
  env.role_rank = role.rank_first + local_rank - first;
  env.role_world_size = role.world_size;
  if (by_role) {
    env.rank = env.role_rank;
    env.world_size = role.world_size;
    env.local_rank = local_rank - first;
    env.local_world_size = roles[index].workers;
    env.group_rank = role.node_rank;
    env.group_world_size = role.node_count;
    env.master_addr = role.master_addr;
    env.master_port = role.master_port;
    return;
  }
  env.rank = start.rank_first + local_rank;
  env.world_size = start.world_size;
  env.local_rank = local_rank;
  env.local_world_size = 0;
  for (const RoleWorkers& one : roles) env.local_world_size += one.workers;
  env.group_rank = start.node_rank;
  env.group_world_size = start.node_count;
  env.master_addr = start.master_addr;
  env.master_port = start.master_port;
}

void AddRole(const std::string& role, CollectivePlace& place) {
  if (place.waits.has_value()) AddRole(role, place.waits->group);
  for (Collective& last : place.last) AddRole(role, last.group);
}

}  // namespace ddprun
