// SPDX-License-Identifier: Apache-2.0
// How rounds are sealed, broken and followed by others, and how a run ends.
#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_step.h"
#include "rendezvous/membership/restart_rules.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

std::chrono::milliseconds Until(TimePoint deadline, TimePoint now) {
  return std::max(std::chrono::milliseconds{0},
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now));
}

bool WasDrained(const std::optional<Failure>& cause) {
  return cause && cause->kind == FailureKind::kNodeDrained;
}

// A node was drained, or joined: that is no failure.
bool IsUncounted(const std::optional<Failure>& cause) { return cause && !IsFailure(*cause); }

// The longest stop timeout of all nodes applies.
Duration StopTimeoutOf(const RunState& state) {
  Duration longest = kStopTimeout;
  for (const auto& entry : state.members) {
    longest = std::max<Duration>(longest, entry.second.join.stop_timeout);
  }
  return longest;
}

}  // namespace

void MembershipStep::SealIfReady() {
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

void MembershipStep::Seal(std::vector<Member*> chosen) {
  GiveRanks(state_, chosen);
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
  start.world_size = 0;
  for (Member* member : chosen) {
    member->rank_first = start.world_size;
    start.world_size += member->join.local_world_size;
  }
  GiveRoleRanks(chosen);
  state_.phase = RunPhase::kSealed;
  state_.kept = 0;
  state_.sealed = now_;
  state_.stalled_in.reset();
  state_.stall_due.reset();
  state_.stall_look_due.reset();
  state_.late_due.reset();
  RunNotice& note = AddNotice(NoticeKind::kRoundStarted);
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
    SetPhase(*member, MemberPhase::kRunning);
    member->can_be_kept = member->prepares = false;
    SendTo(*member, StartOf(*member));
  }
}

void MembershipStep::Break(Failure cause) {
  if (IsStopped(cause)) cause.places = StillIn(state_);
  state_.phase = RunPhase::kBroken;
  AddNotice(NoticeKind::kRoundBroken).why = cause;
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
    SetPhase(member, MemberPhase::kStopping);
    SendTo(member, Stop{state_.round, cause, last});
  }
  AdvanceIfStopped();
  TellWaiting();
}

// The cause is another one than was sent when the round broke: it is sent again to all.
void MembershipStep::Correct(Failure cause) {
  state_.cause = std::move(cause);
  const bool last = !MayRestart(state_);
  for (const auto& entry : state_.members) {
    if (IsInRound(entry.second)) SendTo(entry.second, Stop{state_.round, *state_.cause, last});
  }
}

void MembershipStep::AdvanceIfStopped() {
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

void MembershipStep::FormNextRound() {
  state_.phase = RunPhase::kForming;
  state_.round = RoundId{ToNumber(state_.round) + 1};
  if (!IsUncounted(state_.cause)) ++state_.restart_count;
  AddNotice(NoticeKind::kRestart).why = state_.cause;
  state_.outcomes.clear();
  const std::chrono::milliseconds delay = CountRestartIfFailed();
  state_.words_sent.reset();
  state_.deadline = now_ + delay + state_.rules->join_timeout;
  for (auto& entry : state_.members) SetPhase(entry.second, MemberPhase::kWaiting);
  effects_.emplace_back(std::in_place_type<RoundChanged>, RoundChanged{state_.round});
  SealIfReady();
  TellWaiting();
}

// Draining a node is no failure and is not counted. Returns the delay of the next round.
std::chrono::milliseconds MembershipStep::CountRestartIfFailed() {
  state_.left_out.clear();
  if (IsUncounted(state_.cause)) return {};
  const RestartPolicy& policy = state_.rules->restart_policy;
  CountRestart(state_.restarts, policy, state_.broke);
  LeaveOutIfDue();
  const auto delay = RestartDelay(state_.restarts, policy);
  if (delay.count() > 0) state_.restart_due = now_ + delay;
  return delay;
}

// Removes all nodes of the host whose failure broke the round, if it was one failure too many.
void MembershipStep::LeaveOutIfDue() {
  const RestartPolicy& policy = state_.rules->restart_policy;
  const Failure& cause = *state_.cause;
  if (!CountFailure(state_.restarts, policy, cause, state_.broke, now_)) return;
  state_.left_out = LeftOutWords(policy, cause.host);
  std::vector<NodeId> going;
  for (const auto& [id, member] : state_.members) {
    if (member.join.host == cause.host) going.push_back(id);
  }
  for (const NodeId& id : going) {
    const Member& member = state_.members.at(id);
    const std::optional<LinkId> link = member.link;
    Join back = member.join;
    back.resume = true;
    Erase(id, LossOf(member, state_.left_out));
    if (!link) continue;
    // The reply that it would get if it reconnected.
    if (auto refused = RefusalOfLeftOut(state_, back, now_)) Send(*link, *std::move(refused));
    End(*link);
  }
}

// For a reason outside the round: no other round follows.
void MembershipStep::EndRun(Failure cause) {
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
          SendTo(entry.second, Stop{state_.round, cause, /*last=*/true});
        }
      }
      if (decides) state_.cause = std::move(cause);
      return;
    case RunPhase::kClosed:
      return;
  }
}

void MembershipStep::CloseWithFailure(Failure cause) {
  Verdict verdict = MakeVerdict();
  if (state_.phase == RunPhase::kBroken) {
    verdict.not_restarted = WhyNoNextRound(state_).value_or("");
  }
  verdict.exit_code = ToExitCode(cause);
  verdict.outcomes = ToShow(state_.outcomes, cause.rank);
  state_.cause = cause;
  verdict.cause = std::move(cause);
  Close(std::move(verdict));
}

// Members that are away, or whose streams break before they acknowledged the verdict, may reconnect
// for it until their lease expires.
void MembershipStep::Close(Verdict verdict) {
  state_.phase = RunPhase::kClosed;
  RunNotice& note = AddNotice(NoticeKind::kRunFinished);
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
    SendTo(entry.second, Finish{verdict});
    if (state_.rules->lease.count() == 0) End(*entry.second.link);
  }
  state_.verdict = std::move(verdict);
}

// ---- Parts

Start MembershipStep::StartOf(const Member& member) const {
  Start start = *state_.start;
  start.node_rank = *member.node_rank;
  start.rank_first = member.rank_first;
  start.role_rank_first = member.role_rank_first;
  start.role_world_size = member.role_world_size;
  start.roles = member.roles;
  return start;
}

// A node that has just joined is told at once; the others when the sentence has changed and the
// last one is old enough.
void MembershipStep::TellWaiting(Member* newcomer) {
  if (!state_.rules || state_.phase == RunPhase::kClosed) return;
  if (state_.waiting == 0) {
    state_.words_due.reset();
    return;
  }
  const auto intervals = static_cast<int>(1 + state_.members.size() / kNodesPerWaitingInterval);
  const TimePoint due =
      state_.words_sent ? *state_.words_sent + intervals * kWaitingInterval : now_;
  const bool all = now_ >= due;
  // Composing the sentence takes time linear in the number of nodes: in a large run a newcomer gets
  // the last one.
  const bool exact = all || state_.words.empty() || state_.members.size() <= kExactWordsNodesMax;
  if (!exact) state_.words_due = due;
  if (exact) {
    std::string words = WaitingWords(state_);
    if (words != state_.words) {
      state_.words = std::move(words);
      ++state_.words_version;
      state_.words_due = due;
    }
  }
  if (!all) {
    if (newcomer != nullptr && newcomer->phase == MemberPhase::kWaiting &&
        newcomer->words_told != state_.words_version) {
      Notify(*newcomer);
    }
    return;
  }
  state_.words_due.reset();
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    if (member.phase != MemberPhase::kWaiting || !member.link ||
        member.words_told == state_.words_version) {
      continue;
    }
    state_.words_sent = now_;
    Notify(member);
  }
}

void MembershipStep::Notify(Member& member) {
  std::chrono::milliseconds remaining{0};
  if (state_.phase == RunPhase::kForming) {
    remaining = Until(FormingUntil(state_), now_);
  } else if (state_.phase == RunPhase::kBroken) {
    remaining = Until(state_.deadline, now_);
  }
  member.words_told = state_.words_version;
  SendTo(member, Waiting{state_.words, remaining});
}

Verdict MembershipStep::MakeVerdict() const {
  Verdict verdict;
  verdict.round = state_.round;
  verdict.restart_count = state_.restart_count;
  verdict.restarts_max = state_.rules ? state_.rules->restarts_max : 0;
  // For a round that broke, as of that time.
  verdict.restarts_forgiven =
      RestartsForgiven(state_, state_.phase == RunPhase::kBroken ? state_.broke : now_);
  if (state_.start) {
    verdict.world_size = state_.start->world_size;
    verdict.node_count = state_.start->node_count;
  }
  verdict.time = TimeOf(state_);
  return verdict;
}

}  // namespace ddprun
