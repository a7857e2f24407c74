// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/rounds.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/membership/restart_rules.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

bool WasDrained(const std::optional<Failure>& cause) {
  return cause && cause->kind == FailureKind::kNodeDrained;
}

// A node was drained, or joined: that is no failure.
bool IsUncounted(const std::optional<Failure>& cause) { return cause && !IsFailure(*cause); }

// Failures that follow from the loss of peers; the loss itself is then the first cause.
bool MayBeAftermath(const Failure& cause) {
  return cause.kind == FailureKind::kWorkerExited || cause.kind == FailureKind::kWorkerSignaled ||
         cause.kind == FailureKind::kWorkerHung || cause.kind == FailureKind::kCollectiveFailed;
}

Failure JoinOf(const Member& member) {
  Failure cause;
  cause.kind = FailureKind::kNodeJoined;
  cause.host = member.join.host;
  cause.node_rank = member.node_rank.value_or(-1);
  return cause;
}

}  // namespace

Duration StopTimeoutOf(const RunState& state) {
  Duration longest = kStopTimeout;
  for (const auto& entry : state.members) {
    longest = std::max<Duration>(longest, entry.second.join.stop_timeout);
  }
  return longest;
}

void Rounds::SealIfReady() {
  if (state_.phase != RunPhase::kForming) return;
  if (state_.restart_due && now_ < *state_.restart_due) return;
  state_.restart_due.reset();
  const auto here = static_cast<int>(state_.members.size());
  if (here < state_.rules->nodes_min) {
    state_.last_call_due.reset();
    return;
  }
  // The place of a drained node is not waited for.
  // Nor is a missing node where it is taken in later, at the cost of a step.
  const bool grows = state_.was_kept && state_.rules->restart_policy.on_join == OnJoin::kGrow;
  const bool full = here >= state_.rules->nodes_max || grows || WasDrained(state_.cause);
  if (!state_.last_call_due) {
    state_.last_call_due = std::min(now_ + state_.rules->last_call, state_.deadline);
  }
  if (!full && now_ < *state_.last_call_due) return;
  std::vector<Member*> chosen = ChooseForRound(state_);
  // A node that is away keeps its place until its lease expires.
  const bool all_here = std::all_of(chosen.begin(), chosen.end(),
                                    [](const Member* member) { return member->link.has_value(); });
  if (all_here) Seal(std::move(chosen));
}

void Rounds::Seal(std::vector<Member*> chosen) {
  AssignRanks(state_, chosen);
  Start start;
  start.round = state_.round;
  start.run_id = state_.run_id;
  start.node_count = static_cast<int>(chosen.size());
  start.master_addr = chosen.front()->join.address;
  start.master_port = chosen.front()->join.worker_port;
  start.restart_count = state_.restart_count;
  start.restarts_max = state_.rules->restarts_max;
  start.restarts_forgiven = state_.restart_count - state_.restarts.used;
  start.left_out = state_.left_out;
  const auto host = std::find_if(chosen.begin(), chosen.end(),
                                 [](const Member* member) { return member->join.hosts_service; });
  start.traceparent = (host == chosen.end() ? chosen.front() : *host)->join.traceparent;
  start.world_size = 0;
  for (Member* member : chosen) {
    member->rank_first = start.world_size;
    start.world_size += member->join.local_world_size;
  }
  AssignRoleRanks(chosen);
  state_.phase = RunPhase::kSealed;
  state_.sealed = now_;
  state_.stalled_in.reset();
  state_.stall_due.reset();
  state_.stall_look_due.reset();
  state_.late_due.reset();
  RunNotice& note = step_.AddNotice(NoticeKind::kRoundStarted);
  note.node_count = start.node_count;
  note.world_size = start.world_size;
  if (state_.cause) state_.last_cause = std::exchange(state_.cause, std::nullopt);
  state_.start = std::move(start);
  state_.words_due.reset();
  state_.last_call_due.reset();
  for (Member* member : chosen) {
    member->seated = true;
    member->slow_rank = -1;
    member->still.clear();
    roster_.SetPhase(*member, MemberPhase::kRunning);
    member->can_be_kept = member->prepares = false;
    step_.SendTo(*member, StartOf(state_, *member));
  }
}

void Rounds::Break(Failure cause) {
  if (IsStopped(cause)) cause.places = StillIn(state_);
  state_.phase = RunPhase::kBroken;
  state_.left_out.clear();
  step_.AddNotice(NoticeKind::kRoundBroken).why = cause;
  state_.deadline = now_ + StopTimeoutOf(state_);
  state_.broke = now_;
  EndRound(state_.restarts, state_.rules->restart_policy, cause, now_ - state_.sealed);
  state_.words_sent.reset();
  state_.cause = cause;
  const bool last = !MayRestart(state_);
  state_.was_kept = true;
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    if (!IsInRound(member)) continue;
    state_.was_kept = state_.was_kept && member.can_be_kept;
    roster_.SetPhase(member, MemberPhase::kStopping);
    step_.SendTo(member, Stop{state_.round, cause, last});
  }
  AdvanceIfStopped();
  TellWaiting(step_);
}

void Rounds::Correct(Failure cause) {
  state_.cause = std::move(cause);
  const bool last = !MayRestart(state_);
  for (const auto& entry : state_.members) {
    if (IsInRound(entry.second))
      step_.SendTo(entry.second, Stop{state_.round, *state_.cause, last});
  }
}

void Rounds::AdvanceIfStopped() {
  if (state_.phase != RunPhase::kBroken) return;
  // The end of the run waits for all nodes. The next round does not wait for the workers of leaving
  // nodes.
  if (state_.stopping > 0 && (!MayRestart(state_) || state_.stopping > state_.leaving)) return;
  // Nodes that are let go have no place in the next round: without them there may be none.
  if (MayRestart(state_)) LetLeaversGo();
  if (WhyNoNextRound(state_)) {
    CloseWithFailure(*state_.cause);
  } else {
    FormNextRound();
  }
}

void Rounds::FormNextRound() {
  state_.phase = RunPhase::kForming;
  state_.round = RoundId{ToNumber(state_.round) + 1};
  if (!IsUncounted(state_.cause)) ++state_.restart_count;
  step_.AddNotice(NoticeKind::kRestart).why = state_.cause;
  state_.outcomes.clear();
  const std::chrono::milliseconds delay = CountRestartIfFailed();
  state_.words_sent.reset();
  state_.deadline = now_ + delay + state_.rules->join_timeout;
  for (auto& entry : state_.members) roster_.SetPhase(entry.second, MemberPhase::kWaiting);
  state_.kept = 0;
  step_.effects.emplace_back(std::in_place_type<RoundChanged>, RoundChanged{state_.round});
  SealIfReady();
  TellWaiting(step_);
}

// Draining a node is no failure and is not counted. Returns the delay of the next round.
std::chrono::milliseconds Rounds::CountRestartIfFailed() {
  if (IsUncounted(state_.cause)) return {};
  const RestartPolicy& policy = state_.rules->restart_policy;
  CountRestart(state_.restarts, policy, state_.broke);
  LeaveOutIfDue();
  const auto delay = RestartDelay(state_.restarts, policy);
  if (delay.count() > 0) state_.restart_due = now_ + delay;
  return delay;
}

// Removes all nodes of the host whose failure broke the round, if it was one failure too many.
void Rounds::LeaveOutIfDue() {
  const RestartPolicy& policy = state_.rules->restart_policy;
  const Failure& cause = *state_.cause;
  if (!CountFailure(state_.restarts, policy, cause, state_.broke, now_)) return;
  const std::string words = LeftOutWords(policy, cause.host);
  AddLeftOut(state_, words);
  std::vector<NodeId> going;
  for (const auto& [id, member] : state_.members) {
    if (member.join.host == cause.host) going.push_back(id);
  }
  for (const NodeId& id : going) {
    const Member& member = state_.members.at(id);
    const std::optional<LinkId> link = member.link;
    Join back = member.join;
    back.resume = true;
    roster_.Erase(id, LossOf(member, words));
    if (!link) continue;
    // The reply that it would get if it reconnected.
    if (auto refused = RefusalOfLeftOut(state_, back, now_)) step_.Send(*link, *std::move(refused));
    step_.End(*link);
  }
}

void Rounds::EndRun(Failure cause) {
  // A run that was ending anyway ends for its own reason. Of an operator's requests the last one
  // counts.
  const bool is_request = cause.kind == FailureKind::kRunStopped;
  const bool decides = state_.phase != RunPhase::kBroken || MayRestart(state_) ||
                       (is_request && state_.cause->kind == FailureKind::kRunStopped);
  state_.may_restart = false;
  switch (state_.phase) {
    case RunPhase::kForming:
      CloseWithFailure(std::move(cause));
      return;
    case RunPhase::kSealed:
      Break(cause);
      return;
    case RunPhase::kBroken:
      if (!decides && !is_request) return;
      for (const auto& entry : state_.members) {
        if (entry.second.phase == MemberPhase::kStopping) {
          step_.SendTo(entry.second, Stop{state_.round, cause, /*last=*/true});
        }
      }
      if (decides) state_.cause = std::move(cause);
      return;
    case RunPhase::kClosed:
      return;
  }
}

void Rounds::CloseWithFailure(Failure cause) {
  Verdict verdict = MakeVerdict(state_, now_);
  if (state_.phase == RunPhase::kBroken) {
    verdict.not_restarted = WhyNoNextRound(state_).value_or("");
  }
  verdict.exit_code = ToExitCode(cause);
  verdict.outcomes = ToShow(state_.outcomes, cause.rank);
  state_.cause = cause;
  verdict.cause = std::move(cause);
  Close(std::move(verdict));
}

void Rounds::Close(Verdict verdict) {
  state_.phase = RunPhase::kClosed;
  RunNotice& note = step_.AddNotice(NoticeKind::kRunFinished);
  note.why = verdict.cause;
  note.exit_code = verdict.exit_code;
  note.node_count = verdict.node_count;
  note.world_size = verdict.world_size;
  state_.words.clear();
  state_.words_due.reset();
  state_.last_call_due.reset();
  state_.restart_due.reset();
  for (const auto& entry : state_.members) {
    if (!entry.second.link) continue;
    step_.SendTo(entry.second, Finish{verdict});
    if (state_.rules->lease.count() == 0) step_.End(*entry.second.link);
  }
  state_.verdict = std::move(verdict);
}

// Lets drained nodes go, and those that have sent Leave.
void Rounds::LetLeaversGo() {
  std::vector<std::pair<NodeId, Failure>> going;
  for (const auto& [id, member] : state_.members) {
    if (member.leaving) {
      NoteLeaver(state_, *member.leaving);
      going.emplace_back(id, *member.leaving);
    } else if (!member.drained_by.empty()) {
      going.emplace_back(id, DrainFailure(member));
    }
  }
  for (const auto& [id, reason] : going) roster_.LetGo(id, reason);
}

void Rounds::React(std::vector<Loss> losses) {
  if (losses.empty()) return;
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.may_restart) {
        CloseWithFailure(std::move(losses.front().reason));
      } else if (state_.members.empty()) {
        state_.phase = RunPhase::kClosed;
        state_.words_due.reset();
        state_.restart_due.reset();
      } else {
        SealIfReady();
        TellWaiting(step_);
      }
      return;
    case RunPhase::kSealed: {
      const auto first = std::find_if(losses.begin(), losses.end(),
                                      [](const Loss& loss) { return loss.was_in_round; });
      if (first != losses.end()) Break(first->reason);
      return;
    }
    case RunPhase::kBroken:
      for (Loss& loss : losses) {
        if (IsTheCause(loss)) Correct(std::move(loss.reason));
      }
      AdvanceIfStopped();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// For a round that has broken. The workers of a node whose agent died were not stopped by the
// service: their peers' failures follow from that. Not so if its workers had ended already.
bool Rounds::IsTheCause(const Loss& loss) const {
  if (loss.reason.kind != FailureKind::kNodeLost) return false;
  return (loss.was_silent_before_the_break && MayBeAftermath(*state_.cause)) ||
         (loss.was_dead_before_it_stopped && TakesThePlaceOf(loss.reason, *state_.cause));
}

void Rounds::Grow() {
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
      step_.SendTo(member, StandBy{});
    }
    const bool ready = on_join == OnJoin::kGrow ? member.can_be_kept : on_join == OnJoin::kRestart;
    if (has_place && ready) return Break(JoinOf(member));
  }
}

}  // namespace ddprun
