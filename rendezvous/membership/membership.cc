// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/membership.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_preemption.h"
#include "rendezvous/membership/membership_step.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/membership/rank_reports.h"
#include "rendezvous/membership/restart_rules.h"
#include "rendezvous/membership/roster.h"
#include "rendezvous/membership/rounds.h"
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

// The cases stand in the order of the diagram in RULES.md.
class Events {
 public:
  explicit Events(MembershipStep& step) : step_(step), state_(step.state), now_(step.now) {}

  void operator()(const NodeJoined& event);
  void operator()(const NodeReported& event);
  void operator()(const NodeGone& event);
  void operator()(const NodeLost& event);
  void operator()(const RunStopped& event);
  void operator()(const NodeDrained& event);
  void operator()(const Tick&);

 private:
  // Reports of a member.
  void On(Member& member, const Join&);
  void On(Member& member, const WorkerFailed& report);
  void On(Member& member, const NodeSucceeded& report);
  void On(Member& member, const NodeStopped& report);
  void On(Member& member, const Leave& report);
  void On(Member& member, const Heartbeat& report) { ranks_.TakeHeartbeat(member, report); }
  void On(Member& member, const CanBeKept& report);
  void On(Member& member, const PreemptionReport& report) { preemptions_.Take(member, report); }
  void On(Member&, const LogLines&) {}      // the run has given them to LogSubscriptions
  void On(Member&, const FaultReport&) {}   // likewise to the caller that waits for it
  void On(Member&, const OwnerQueries&) {}  // likewise, as the next, to ConnectionOwners
  void On(Member&, const OwnerAnswers&) {}

  void RefuseJoin(LinkId link, const Join& join, Refused refused);
  void Resume(LinkId link, Member& member);
  void Remove(const NodeId& id, Failure reason) {
    rounds_.React(roster_.Erase(id, std::move(reason)));
  }
  void LeaveNow(const Member& member) {
    NoteLeaver(state_, *member.leaving);
    rounds_.React(roster_.LetGo(member.join.node_id, Failure(*member.leaving)));
  }

  MembershipStep& step_;
  RunState& state_;
  const TimePoint now_;
  Roster roster_{step_};
  Rounds rounds_{step_, roster_};
  RankReports ranks_{step_, rounds_};
  Preemptions preemptions_{step_, roster_, rounds_};
};

// ---- Events

void Events::operator()(const NodeJoined& event) {
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
  const std::optional<std::pair<NodeId, Failure>> replaced = roster_.TakePlace(join);
  Member& member =
      roster_.Add(event.link, join, replaced ? &state_.members.at(replaced->first) : nullptr);
  rounds_.SealIfReady();
  rounds_.Grow();
  TellWaiting(step_, &member);
  if (replaced) Remove(replaced->first, replaced->second);
}

// Messages in flight when the stream broke may be lost: the node is sent the state of the run
// again, and repeats its reports of the round.
void Events::Resume(LinkId link, Member& member) {
  roster_.Link(link, member);
  if (state_.phase == RunPhase::kClosed) {
    if (state_.verdict) step_.Send(link, Finish{*state_.verdict});
    return;
  }
  if (member.phase == MemberPhase::kRunning) step_.Send(link, StartOf(state_, member));
  if (member.phase == MemberPhase::kStopping)
    step_.Send(link, Stop{state_.round, *state_.cause, IsEnding(state_)});
  rounds_.SealIfReady();
  member.prepares = false;
  rounds_.Grow();
  TellWaiting(step_, &member);
}

void Events::RefuseJoin(LinkId link, const Join& join, Refused refused) {
  RunNotice& note = step_.AddNotice(NoticeKind::kNodeRefused);
  note.host = join.host;
  note.words = std::string(refused.status.message());
  step_.Send(link, std::move(refused));
  step_.End(link);
}

void Events::operator()(const NodeReported& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  Member& member = state_.members.at(it->second);
  member.last_seen = now_;
  std::visit([&](const auto& report) { On(member, report); }, event.report);
}

void Events::operator()(const NodeGone& event) {
  const auto it = state_.links.find(event.link);
  if (it == state_.links.end()) return;
  const NodeId id = it->second;
  Member& member = state_.members.at(id);
  state_.links.erase(it);
  member.link.reset();
  member.last_seen = now_;
  if (state_.phase != RunPhase::kClosed) step_.AddNotice(NoticeKind::kNodeAway, &member);
  // With a lease, a member of a closed run whose stream ends before it acknowledged the verdict may
  // reconnect for it.
  if (state_.rules->lease.count() == 0) {
    Remove(id, LossOf(member,
                      "its connection to the rendezvous service ended unexpectedly; check "
                      "that machine and its network"));
    return;
  }
  state_.lease_due = std::min(*state_.lease_due, now_ + LeaseOf(state_, member));
  TellWaiting(step_);
}

void Events::operator()(const NodeLost& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end()) return;
  const Member& member = it->second;
  // If that agent is alive after all, it must stop its workers.
  if (state_.phase == RunPhase::kClosed) {
    roster_.EndIfOpen(member);
  } else if (member.link) {
    step_.Refuse(*member.link, FencedAsDead(state_, member, event.reason));
  }
  const bool stopping = member.phase == MemberPhase::kStopping;
  Loss loss = roster_.Erase(event.node_id, LossOf(member, event.reason));
  loss.was_dead_before_it_stopped = stopping;
  rounds_.React(loss);
}

void Events::operator()(const RunStopped& event) {
  if (state_.phase == RunPhase::kClosed || !state_.rules) return;
  rounds_.EndRun(StopFailure(event.by, event.now));
}

void Events::operator()(const NodeDrained& event) {
  const auto it = state_.members.find(event.node_id);
  if (it == state_.members.end() || state_.phase == RunPhase::kClosed) return;
  Member& member = it->second;
  member.drained_by = absl::StrCat("ddpctl from ", event.by);
  Failure reason = DrainFailure(member);
  if (!IsInRound(member)) {
    roster_.LetGo(event.node_id, reason);
    rounds_.React(Loss{std::move(reason)});
    return;
  }
  if (state_.phase == RunPhase::kSealed && !event.at_next_round) rounds_.Break(reason);
}

void Events::operator()(const Tick&) {
  if (roster_.LeasesAreDue()) {
    rounds_.React(roster_.EndLeases());
    roster_.PlanNextLook();
  }
  preemptions_.DrainIfDue();
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.rules) return;
      rounds_.SealIfReady();
      if (state_.phase == RunPhase::kForming && now_ >= state_.deadline) {
        rounds_.CloseWithFailure(JoinTimeoutFailure(state_));
        return;
      }
      TellWaiting(step_);
      return;
    case RunPhase::kBroken: {
      if (now_ < state_.deadline) {
        TellWaiting(step_);
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
          step_.Refuse(*member.link, StoppedTooLate(state_, member));
        }
        losses.push_back(roster_.Erase(id, LossOf(member, "it did not stop its workers in time")));
      }
      rounds_.React(std::move(losses));
      return;
    }
    case RunPhase::kSealed:
      TellWaiting(step_);
      ranks_.Tell();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// ---- Reports. Those of another round than the current one are late and ignored.

void Events::On(Member& member, const Join&) {
  if (state_.phase == RunPhase::kClosed) return;
  step_.Refuse(*member.link, absl::InvalidArgumentError(
                                 "Join is the first report of a stream, and only the first"));
  Remove(member.join.node_id, LossOf(member, "its agent joined twice on one connection"));
}

void Events::On(Member& member, const WorkerFailed& report) {
  const bool breaks = state_.phase == RunPhase::kSealed && IsInRound(member);
  const bool stops = state_.phase == RunPhase::kBroken && member.phase == MemberPhase::kStopping;
  if ((!breaks && !stops) || report.round != state_.round) return;
  Failure cause = WorkerFailureFrom(member, report.failure);
  if (breaks) {
    rounds_.Break(cause);
  } else if (TakesThePlaceOf(cause, *state_.cause)) {
    LearnFrom(*state_.cause, cause);
    rounds_.Correct(std::move(cause));
  } else {
    LearnFrom(cause, *state_.cause);
  }
}

void Events::On(Member& member, const NodeSucceeded& report) {
  ranks_.TakeTime(member, report.time);
  if (state_.phase != RunPhase::kSealed || report.round != state_.round || !IsInRound(member))
    return;
  roster_.SetPhase(member, MemberPhase::kSucceeded);
  step_.AddNotice(NoticeKind::kNodeSucceeded, &member);
  if (state_.running > 0) {
    state_.late_due = now_ + kLateEndTime;
    return;
  }
  Verdict verdict = MakeVerdict(state_, now_);
  verdict.success = true;
  rounds_.Close(std::move(verdict));
}

void Events::On(Member& member, const NodeStopped& report) {
  ranks_.TakeTime(member, report.time);
  if (state_.phase != RunPhase::kBroken || report.round != state_.round) return;
  if (member.phase != MemberPhase::kStopping) return;
  roster_.SetPhase(member, MemberPhase::kStopped);
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
  if (member.leaving && !member.join.hosts_service) return LeaveNow(member);
  rounds_.AdvanceIfStopped();
}

void Events::On(Member& member, const Leave& report) {
  if (state_.phase == RunPhase::kClosed) {
    // It acknowledges the verdict.
    roster_.EndIfOpen(member);
    Remove(member.join.node_id, LeaveReasonFrom(member, report.reason));
    return;
  }
  Failure reason = LeaveReasonFrom(member, report.reason);
  if (!member.leaving) {
    member.leaving = reason;
    ++state_.leaving;
  }
  if (report.close_run && member.join.hosts_service) {
    rounds_.EndRun(std::move(reason));
    if (report.at_once && state_.phase != RunPhase::kClosed)
      rounds_.CloseWithFailure(*state_.cause);
    return;
  }
  // The others stop at once; this node reports again when its own workers have ended.
  const bool has_workers = member.phase == MemberPhase::kRunning ||
                           member.phase == MemberPhase::kSucceeded ||
                           member.phase == MemberPhase::kStopping;
  if (report.at_once || !has_workers) {
    LeaveNow(member);
  } else if (state_.phase == RunPhase::kSealed) {
    rounds_.Break(reason);
  } else {
    rounds_.AdvanceIfStopped();
  }
}

void Events::On(Member& member, const CanBeKept& report) {
  const bool of_round = IsInRound(member);
  if (report.round != (of_round ? state_.round : kNoRound)) return;
  roster_.SetKept(member, report.all);
  rounds_.Grow();
}

}  // namespace

Start StartOf(const RunState& state, const Member& member) {
  Start start = *state.start;
  start.node_rank = *member.node_rank;
  start.rank_first = member.rank_first;
  start.role_rank_first = member.role_rank_first;
  start.role_world_size = member.role_world_size;
  start.roles = member.roles;
  return start;
}

Verdict MakeVerdict(const RunState& state, TimePoint now) {
  Verdict verdict;
  verdict.round = state.round;
  verdict.restart_count = state.restart_count;
  verdict.restarts_max = state.rules ? state.rules->restarts_max : 0;
  // For a round that broke, as of that time.
  verdict.restarts_forgiven =
      RestartsForgiven(state, state.phase == RunPhase::kBroken ? state.broke : now);
  if (state.start) {
    verdict.world_size = state.start->world_size;
    verdict.node_count = state.start->node_count;
  }
  verdict.time = TimeOf(state);
  return verdict;
}

RunState MakeRun(std::string run_id, bool durable) {
  RunState state;
  state.run_id = std::move(run_id);
  state.durable = durable;
  return state;
}

std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now) {
  MembershipStep step{state, now, {}};
  std::visit(Events(step), event);
  return std::move(step.effects);
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
                   only_if(state.phase != RunPhase::kClosed, state.drain_due),
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
