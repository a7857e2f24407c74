// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/membership.h"

namespace ddprun {
namespace {

absl::Status Broken(const std::string& what) { return absl::InternalError(what); }

absl::Status CheckMembers(const RunState& state) {
  std::set<int> ranks;
  std::set<std::string> ids;
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    if (!ids.insert(member.join.node_id.value).second)
      return Broken("two members have one node id");
    if (!member.node_rank) continue;
    if (*member.node_rank < 0 || *member.node_rank >= state.rules->nodes_max) {
      return Broken("a node rank is out of range");
    }
    if (!ranks.insert(*member.node_rank).second) return Broken("two members have one node rank");
    if (member.join.node_rank && member.join.node_rank != member.node_rank) {
      return Broken("a member was given another rank than it asked for");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPhase(const RunState& state) {
  const auto count = static_cast<int>(state.members.size());
  int world_size = 0;
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    world_size += member.join.local_world_size;
    const bool working =
        member.phase == MemberPhase::kRunning || member.phase == MemberPhase::kSucceeded;
    const bool stopping =
        member.phase == MemberPhase::kStopping || member.phase == MemberPhase::kStopped;
    if (state.phase == RunPhase::kForming && member.phase != MemberPhase::kWaiting) {
      return Broken("a member of a forming round does not wait");
    }
    if (state.phase == RunPhase::kSealed && (!working || !member.node_rank)) {
      return Broken("a member of a sealed round does not run, or has no rank");
    }
    if (state.phase == RunPhase::kBroken && working)
      return Broken("a member of a broken round still runs");
    if (state.phase == RunPhase::kSealed && stopping)
      return Broken("a member of a sealed round stops");
  }
  if (state.rules && count > state.rules->nodes_max) return Broken("more members than places");
  if (state.phase == RunPhase::kSealed &&
      (count != state.rules->nodes_max || count != state.node_count ||
       world_size != state.world_size)) {
    return Broken("a sealed round's sizes do not fit its members");
  }
  if (state.phase == RunPhase::kForming && state.rules && count >= state.rules->nodes_max) {
    return Broken("a round with all its nodes was not sealed");
  }
  if (state.phase == RunPhase::kSealed && state.cause) return Broken("a sealed round has a cause");
  if (state.phase == RunPhase::kBroken && !state.cause)
    return Broken("a broken round has no cause");
  return absl::OkStatus();
}

absl::Status CheckVerdict(const RunState& state) {
  if (state.verdict && state.phase != RunPhase::kClosed)
    return Broken("a verdict before the run's end");
  if (state.phase == RunPhase::kClosed && !state.members.empty() && !state.verdict) {
    return Broken("nodes are left in a closed run without a verdict");
  }
  if (state.verdict && state.verdict->success == state.verdict->cause.has_value()) {
    return Broken("a verdict is either a success or has a cause");
  }
  if (state.verdict && state.verdict->success != (state.verdict->exit_code == 0)) {
    return Broken("a verdict's exit code contradicts it");
  }
  return absl::OkStatus();
}

absl::Status CheckProgress(const RunState& before, const RunState& after) {
  const auto from = ToNumber(before.round);
  const auto to = ToNumber(after.round);
  if (to != from && to != from + 1) return Broken("the round went back or was skipped");
  if (after.restart_count - before.restart_count != static_cast<int>(to - from)) {
    return Broken("restarts and rounds are not counted alike");
  }
  if (after.rules && after.restart_count > after.rules->restarts_max)
    return Broken("too many restarts");
  if (to != from && before.phase != RunPhase::kSealed && before.phase != RunPhase::kBroken) {
    return Broken("a round was left that had not been sealed");
  }
  if (before.phase == RunPhase::kBroken && after.phase == RunPhase::kBroken &&
      before.cause != after.cause) {
    return Broken("the cause changed: the first one counts");
  }
  if (before.phase == RunPhase::kBroken && after.phase == RunPhase::kClosed &&
      before.cause != after.cause) {
    return Broken("the verdict has another cause than the broken round");
  }
  if (before.phase == RunPhase::kClosed && after.phase != RunPhase::kClosed)
    return Broken("a closed run opened");
  if (before.verdict && before.verdict != after.verdict) return Broken("the verdict changed");
  if (!before.may_restart && after.may_restart)
    return Broken("a run that may not restart may again");
  for (const auto& [link, member] : after.members) {
    const auto it = before.members.find(link);
    if (it == before.members.end()) continue;
    if (it->second.node_rank && it->second.node_rank != member.node_rank) {
      return Broken(absl::StrCat("node ", member.join.host, " lost its rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInvariants(const RunState& before, const RunState& after) {
  if (!after.members.empty() && !after.rules) return Broken("members without rules");
  absl::Status status = CheckMembers(after);
  status.Update(CheckPhase(after));
  status.Update(CheckVerdict(after));
  status.Update(CheckProgress(before, after));
  return status;
}

}  // namespace ddprun
