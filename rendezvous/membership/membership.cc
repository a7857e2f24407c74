// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/membership.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_step.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/membership/restart_rules.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/divergence.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/rank_ranges.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

constexpr int kPortMax = 65535;

// The same agent joins once more, since its first stream broke before the reply.
bool HasJoined(const RunState& state, const Join& join) {
  const auto it = state.members.find(join.node_id);
  return it != state.members.end() && it->second.join == join;
}

}  // namespace

// ---- Events

void MembershipStep::operator()(const NodeJoined& event) {
  Join join = event.join;
  join.host = HostNameInRun(state_, join);
  if (std::optional<Refused> refused = RefusalOfLeftOut(state_, join, now_)) {
    RefuseJoin(event.link, join, *std::move(refused));
    return;
  }
  if (join.resume || HasJoined(state_, join)) {
    const auto it = state_.members.find(join.node_id);
    if (absl::Status status = CheckResume(state_, join); !status.ok()) {
      RefuseJoin(event.link, join, {std::move(status)});
    } else {
      Resume(event.link, it->second);
    }
    return;
  }
  if (absl::Status status = CheckJoin(state_, join); !status.ok()) {
    RefuseJoin(event.link, join, {std::move(status)});
    return;
  }
  const std::optional<std::pair<NodeId, Failure>> replaced = TakePlace(join);
  Enter(event.link, join, replaced ? &state_.members.at(replaced->first) : nullptr);
  if (replaced) RemoveMember(replaced->first, replaced->second);
}

void MembershipStep::RefuseJoin(LinkId link, const Join& join, Refused refused) {
  RunNotice& note = AddNotice(NoticeKind::kNodeRefused);
  note.host = join.host;
  note.words = std::string(refused.status.message());
  Send(link, std::move(refused));
  End(link);
}

void MembershipStep::operator()(const NodeReported& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  Member& member = state_.members.at(it->second);
  member.last_seen = now_;
  std::visit([&](const auto& report) { On(member, report); }, event.report);
}

void MembershipStep::operator()(const NodeGone& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  const NodeId id = it->second;
  Member& member = state_.members.at(id);
  state_.links.erase(it);
  member.link.reset();
  member.last_seen = now_;
  if (state_.phase != RunPhase::kClosed) AddNotice(NoticeKind::kNodeAway, &member);
  // With a lease, a member of a closed run whose stream ends before it acknowledged the verdict may
  // reconnect for it.
  if (state_.rules->lease.count() == 0) {
    RemoveMember(id, LossOf(member,
                            "its connection to the rendezvous service ended unexpectedly; check "
                            "that machine and its network"));
    return;
  }
  state_.lease_due = std::min(*state_.lease_due, now_ + LeaseOf(state_, member));
  TellWaiting();
}

void MembershipStep::operator()(const NodeLost& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end()) return;
  const Member& member = it->second;
  // If that agent is alive after all, it must stop its workers.
  if (state_.phase == RunPhase::kClosed) {
    EndIfOpen(member);
  } else if (member.link) {
    Refuse(*member.link, FencedAsDead(state_, member, event.reason));
  }
  const bool stopping = member.phase == MemberPhase::kStopping;
  Loss loss = Erase(event.node_id, LossOf(member, event.reason));
  loss.was_dead_before_it_stopped = stopping;
  React(loss);
}

void MembershipStep::operator()(const RunStopped& event) {
  if (state_.phase == RunPhase::kClosed || !state_.rules) return;
  EndRun(StopFailure(event.by, event.now));
}

void MembershipStep::operator()(const NodeDrained& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end() || state_.phase == RunPhase::kClosed) return;
  Member& member = it->second;
  member.drained_by = absl::StrCat("ddpctl from ", event.by);
  Failure reason = DrainFailure(member);
  if (!IsInRound(member)) {
    LetGo(event.node_id, reason);
    React(Loss{std::move(reason)});
    return;
  }
  if (state_.phase == RunPhase::kSealed && !event.at_next_round) Break(reason);
}

void MembershipStep::operator()(const Tick&) {
  EndLeases();
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.rules) return;
      SealIfReady();
      if (state_.phase == RunPhase::kForming && now_ >= state_.deadline) {
        CloseWithFailure(JoinTimeoutFailure(state_));
        return;
      }
      TellWaiting();
      return;
    case RunPhase::kBroken: {
      if (now_ < state_.deadline) {
        TellWaiting();
        return;
      }
      std::vector<NodeId> late;
      for (const auto& [id, member] : state_.members) {
        if (member.phase == MemberPhase::kStopping) late.push_back(id);
      }
      // All in one step: removing the first one alone may end the round.
      std::vector<Loss> losses;
      for (const NodeId& id : late) {
        const Member& member = state_.members.at(id);
        if (member.link) {
          Refuse(*member.link, StoppedTooLate(state_, member));
        }
        losses.push_back(Erase(id, LossOf(member, "it did not stop its workers in time")));
      }
      React(std::move(losses));
      return;
    }
    case RunPhase::kSealed:
      TellWaiting();
      LookForStall();
      TellLate();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// ---- Reports. Those of another round than the current one are late and ignored.

void MembershipStep::On(Member& member, const Join&) {
  if (state_.phase == RunPhase::kClosed) return;
  Refuse(*member.link,
         absl::InvalidArgumentError("Join is the first report of a stream, and only the first"));
  RemoveMember(member.join.node_id, LossOf(member, "its agent joined twice on one connection"));
}

void MembershipStep::On(Member& member, const WorkerFailed& report) {
  const bool breaks = state_.phase == RunPhase::kSealed && IsInRound(member);
  const bool stops = state_.phase == RunPhase::kBroken && member.phase == MemberPhase::kStopping;
  if ((!breaks && !stops) || report.round != state_.round) return;
  Failure cause = WorkerFailureFrom(member, report.failure);
  if (breaks) {
    Break(cause);
  } else if (TakesThePlaceOf(cause, *state_.cause)) {
    LearnFrom(*state_.cause, cause);
    Correct(std::move(cause));
  } else {
    LearnFrom(cause, *state_.cause);
  }
}

// Totals of one agent, which only grow.
void MembershipStep::TakeTime(Member& member, const RankTime& time) {
  if (time.Sum() < member.time.Sum()) return;
  member.time = time;
  member.time_at = now_;
}

void MembershipStep::On(Member& member, const Heartbeat& report) {
  TakeTime(member, report.time);
  if (state_.phase != RunPhase::kSealed || !IsInRound(member)) return;
  if (report.progress_round == state_.round && report.progress.step >= 0) {
    Progressed(state_.restarts, report.progress.step);
  }
  if (report.progress_round != state_.round) return;
  TakeStill(member, report.still);
  TakeSlowRank(member, report.progress);
  if (state_.phase == RunPhase::kSealed) TakeDamages(member, report.progress);
}

// All members' places are put together at most once in kStallLook: in a run of thousands each
// node reports a change when all of them stall.
void MembershipStep::TakeStill(Member& member, const std::vector<RanksInPlace>& still) {
  std::vector<RanksInPlace> own = OwnPlacesFrom(member, still);
  if (own == member.still) return;
  member.still = std::move(own);
  if (!state_.stall_look_due) state_.stall_look_due = now_ + kStallLook;
}

// The time counts from the collective in which most wait: which others are late may change.
void MembershipStep::LookForStall() {
  const auto is_due = [this](std::optional<TimePoint> time) { return time && *time <= now_; };
  const bool tells = is_due(state_.stall_due);
  if (!tells && !is_due(state_.stall_look_due)) return;
  state_.stall_look_due.reset();
  const std::vector<RanksInPlace> places = StillIn(state_);
  const Collective* const most = MostWaiting(places).in;
  const auto in = most != nullptr ? std::optional(*most) : std::nullopt;
  if (in != state_.stalled_in) {
    state_.stalled_in = in;
    state_.stall_due =
        in ? std::optional(now_ + (kStallTime - kStillTime - kStallLook)) : std::nullopt;
  } else if (tells) {
    state_.stall_due.reset();
    TellRanksWait(absl::StrCat("no progress for ", kStallTime.count(), " s: ", ToSentence(places),
                               "; `ddpctl stacks` prints what each rank does"),
                  /*tells_running=*/false);
  }
}

// To the nodes that are late, and to node 0's console. Not while most nodes still run.
void MembershipStep::TellLate() {
  if (!state_.late_due || now_ < *state_.late_due) return;
  state_.late_due.reset();
  if (2 * static_cast<std::size_t>(state_.running) > state_.places.size()) return;
  std::vector<RankRange> ranks;
  std::int64_t count = 0;
  for (const auto& entry : state_.places) {
    const Member& member = state_.members.at(entry.second);
    if (!member.join.roles.empty()) return;  // their programs may well end at different times
    if (member.phase != MemberPhase::kRunning) continue;
    count += member.join.local_world_size;
    AddRanks({member.rank_first, member.rank_first + member.join.local_world_size - 1},
             kOutcomeRangesShown, ranks);
  }
  if (ranks.empty()) return;
  TellRanksWait(
      absl::StrCat(RanksText(ranks, count), count == 1 ? " still runs, " : " still run, ",
                   kLateEndTime.count(),
                   " s after the other nodes' ranks have ended with code 0; `ddpctl stacks ",
                   ranks.front().first, "` prints what rank ", ranks.front().first, " does"),
      /*tells_running=*/true);
}

void MembershipStep::TellRanksWait(const std::string& words, bool tells_running) {
  AddNotice(NoticeKind::kRanksWait).words = words;
  for (const auto& [rank, id] : state_.places) {
    const Member& member = state_.members.at(id);
    if (rank == 0 || (tells_running && member.phase == MemberPhase::kRunning))
      SendTo(member, Waiting{words, {}});
  }
}

void MembershipStep::TakeSlowRank(Member& member, const Progress& progress) {
  const bool is_own = progress.slow_rank >= member.rank_first &&
                      progress.slow_rank < member.rank_first + member.join.local_world_size;
  const std::int64_t was = std::exchange(member.slow_rank, is_own ? progress.slow_rank : -1);
  if (was == member.slow_rank) return;
  const bool is_slow = member.slow_rank >= 0;
  RunNotice& note = AddNotice(is_slow ? NoticeKind::kRankSlow : NoticeKind::kRankNormal, &member);
  note.rank = static_cast<int>(is_slow ? member.slow_rank : was);
  if (!is_slow) {
    note.words =
        absl::StrCat("rank ", was, " on host ", member.join.host, " is as fast as its peers again");
    return;
  }
  const std::string words = SlowRankText(member.slow_rank, member.join.host, progress.slowness);
  if (!member.join.evict_stragglers) {
    note.words = absl::StrCat(words, "; look at that machine");
    return;
  }
  DrainBecause("--evict-stragglers", words, /*only_for_spare=*/true, member, note);
}

// Memory that was damaged twice is not trusted a third time.
void MembershipStep::TakeDamages(Member& member, const Progress& progress) {
  constexpr std::int64_t kDamagesMax = 2;
  if (progress.damages < 0) return;
  const std::int64_t before = std::exchange(member.damages_reported, progress.damages);
  if (progress.damages <= before) return;
  member.damages += progress.damages - before;
  RunNotice& note = AddNotice(NoticeKind::kRankDamaged, &member);
  note.rank = static_cast<int>(progress.damaged_rank);
  const std::string words =
      DamagedRankText(progress.damaged_rank, member.join.host, member.damages);
  if (member.damages < kDamagesMax) {
    note.words = absl::StrCat(words, "; check the memory of that machine");
    return;
  }
  DrainBecause("--check-replicas", words, /*only_for_spare=*/false, member, note);
}

void MembershipStep::DrainBecause(const char* flag, const std::string& words, bool only_for_spare,
                                  Member& member, RunNotice& note) {
  const absl::StatusOr<DrainPlan> plan =
      PlanDrain(state_, {.by = "", .node = member.join.node_id.value});
  const bool leaves = plan.ok() && (plan->has_spare || !only_for_spare);
  note.words = absl::StrCat(words, "; ",
                            !plan.ok() ? std::string(plan.status().message())
                            : leaves   ? plan->sentence
                                       : "no spare node stands by to take its place");
  if (!leaves) return;
  member.drained_by = absl::StrCat(flag, ": ", words);
  Break(DrainFailure(member));
}

void MembershipStep::On(Member& member, const NodeSucceeded& report) {
  TakeTime(member, report.time);
  if (state_.phase != RunPhase::kSealed || report.round != state_.round || !IsInRound(member))
    return;
  SetPhase(member, MemberPhase::kSucceeded);
  AddNotice(NoticeKind::kNodeSucceeded, &member);
  if (state_.running > 0) {
    state_.late_due = now_ + kLateEndTime;
    return;
  }
  Verdict verdict = MakeVerdict();
  verdict.success = true;
  Close(std::move(verdict));
}

void MembershipStep::On(Member& member, const NodeStopped& report) {
  TakeTime(member, report.time);
  if (state_.phase != RunPhase::kBroken || report.round != state_.round) return;
  if (member.phase != MemberPhase::kStopping) return;
  SetPhase(member, MemberPhase::kStopped);
  if (report.worker_port > 0 && report.worker_port <= kPortMax) {
    member.join.worker_port = report.worker_port;
  }
  if (report.role_ports.size() == member.join.roles.size()) {
    for (std::size_t i = 0; i < report.role_ports.size(); ++i) {
      const int port = report.role_ports[i];
      if (port > 0 && port <= kPortMax) member.join.roles[i].worker_port = port;
    }
  }
  // Those of a run that is stopped are from before the stop.
  if (!state_.cause->places.empty() && !IsStopped(*state_.cause))
    MergePlaces(OwnPlacesFrom(member, report.places), state_.cause->places);
  for (const WorkerEnds& ends : WorkerEndsFrom(member, report.ends)) {
    const int first = member.rank_first + ends.first;
    AddOutcome(ends.kind, ends.code, {first, first + ends.count - 1}, state_.outcomes);
  }
  if (member.leaving && !member.join.hosts_service) return LeaveNow(member.join.node_id);
  AdvanceIfStopped();
}

void MembershipStep::On(Member& member, const Leave& report) {
  if (state_.phase == RunPhase::kClosed) {
    // It acknowledges the verdict.
    EndIfOpen(member);
    RemoveMember(member.join.node_id, LeaveReasonFrom(member, report.reason));
    return;
  }
  Failure reason = LeaveReasonFrom(member, report.reason);
  if (!member.leaving) {
    member.leaving = reason;
    ++state_.leaving;
  }
  if (report.close_run && member.join.hosts_service) {
    EndRun(std::move(reason));
    if (report.at_once && state_.phase != RunPhase::kClosed) CloseWithFailure(*state_.cause);
    return;
  }
  // The others stop at once; this node reports again when its own workers have ended.
  const bool has_workers = member.phase == MemberPhase::kRunning ||
                           member.phase == MemberPhase::kSucceeded ||
                           member.phase == MemberPhase::kStopping;
  if (report.at_once || !has_workers) {
    LeaveNow(member.join.node_id);
  } else if (state_.phase == RunPhase::kSealed) {
    Break(reason);
  } else {
    AdvanceIfStopped();
  }
}

RunState MakeRun(std::string run_id, bool durable) {
  RunState state;
  state.run_id = std::move(run_id);
  state.durable = durable;
  return state;
}

std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now) {
  MembershipStep step(state, now);
  std::visit(step, event);
  return step.TakeEffects();
}

RankTime TimeOf(const RunState& state) {
  RankTime time = state.time_gone;
  for (const auto& entry : state.members) time += entry.second.time;
  return time;
}

std::vector<RanksInPlace> StillIn(const RunState& state) {
  std::vector<RanksInPlace> places;
  // In the order of ranks, in which their ranges grow at the end.
  for (const auto& entry : state.places) MergePlaces(state.members.at(entry.second).still, places);
  if (MostWaiting(places).in == nullptr) places.clear();
  return places;
}

void Reindex(RunState& state) {
  state.links.clear();
  state.places.clear();
  state.asked.clear();
  state.waiting = state.running = state.stopping = state.leaving = state.kept = 0;
  for (const auto& [id, member] : state.members) {
    if (member.link) state.links.emplace(*member.link, id);
    if (member.node_rank) state.places.emplace(*member.node_rank, id);
    if (member.join.node_rank) state.asked.emplace(*member.join.node_rank, id);
    state.waiting += member.phase == MemberPhase::kWaiting;
    state.running += member.phase == MemberPhase::kRunning;
    state.stopping += member.phase == MemberPhase::kStopping;
    state.leaving += member.leaving.has_value();
    state.kept += IsInRound(member) && member.can_be_kept;
  }
}

std::optional<TimePoint> NextDeadline(const RunState& state) {
  if (!state.rules || state.members.empty()) return std::nullopt;
  const auto only_if = [](bool due, std::optional<TimePoint> time) {
    return due ? time : std::nullopt;
  };
  const bool forming = state.phase == RunPhase::kForming;
  return Earliest({state.lease_due, state.words_due, only_if(forming, state.restart_due),
                   only_if(forming || state.phase == RunPhase::kBroken, state.deadline),
                   only_if(state.phase == RunPhase::kSealed,
                           Earliest({state.stall_due, state.stall_look_due, state.late_due})),
                   // While a member is away, its lease decides.
                   only_if(state.links.size() == state.members.size(), state.last_call_due)});
}

bool IsEnding(const RunState& state) {
  return state.phase == RunPhase::kClosed ||
         (state.phase == RunPhase::kBroken && WhyNoNextRound(state).has_value());
}

bool IsDrained(const RunState& state) {
  return state.members.empty() && (state.phase == RunPhase::kClosed || !state.rules);
}

}  // namespace ddprun
