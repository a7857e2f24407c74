// SPDX-License-Identifier: Apache-2.0
// How a running round grows: nodes that wait beside it prepare, and the next round takes them in.
#include "rendezvous/membership/membership_step.h"

namespace ddprun {
namespace {

Failure JoinOf(const Member& member) {
  Failure cause;
  cause.kind = FailureKind::kNodeJoined;
  cause.host = member.join.host;
  cause.node_rank = member.node_rank.value_or(-1);
  return cause;
}

}  // namespace

void MembershipStep::On(Member& member, const CanBeKept& report) {
  const bool of_round = IsInRound(member);
  if (report.round != (of_round ? state_.round : kNoRound)) return;
  SetKept(member, report.all);
  Grow();
}

void MembershipStep::SetKept(Member& member, bool can_be_kept) {
  if (IsInRound(member)) state_.kept += can_be_kept - member.can_be_kept;
  member.can_be_kept = can_be_kept;
}

// A round whose workers are all kept loses one step when it is broken, so it is broken as soon as a
// newcomer is ready. Others are broken only where --on-join restart asks for it.
void MembershipStep::Grow() {
  if (state_.phase != RunPhase::kSealed || state_.waiting == 0) return;
  const OnJoin on_join = state_.rules->restart_policy.on_join;
  const bool has_place = state_.start->node_count < state_.rules->nodes_max;
  const bool keeps = on_join != OnJoin::kRestart && state_.kept == state_.start->node_count;
  if (!keeps && on_join != OnJoin::kRestart) return;
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    if (IsInRound(member) || !member.link || member.leaving) continue;
    // Also a spare takes a lost node's place sooner when its workers are parked.
    if (keeps && !member.prepares) {
      member.prepares = true;
      SendTo(member, StandBy{});
    }
    const bool ready = on_join == OnJoin::kGrow ? member.can_be_kept : on_join == OnJoin::kRestart;
    if (has_place && ready) return Break(JoinOf(member));
  }
}

}  // namespace ddprun
