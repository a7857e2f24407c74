// SPDX-License-Identifier: Apache-2.0
// The members of the run: they join, reconnect, are lost and leave.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_step.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

// The notice for a node that is no longer a member.
NoticeKind KindOf(const Failure& why) {
  if (why.kind == FailureKind::kNodeDrained) return NoticeKind::kNodeDrained;
  return why.kind == FailureKind::kNodeInterrupted ? NoticeKind::kNodeLeft : NoticeKind::kNodeLost;
}

// Failures that follow from the loss of peers; the loss itself is then the first cause.
bool MayBeAftermath(const Failure& cause) {
  return cause.kind == FailureKind::kWorkerExited || cause.kind == FailureKind::kWorkerSignaled ||
         cause.kind == FailureKind::kWorkerHung || cause.kind == FailureKind::kCollectiveFailed;
}

// A node whose connection broke tries to come back for a lease. One that was heard from half a
// lease after the service had woken up has not given up.
bool MayHaveGivenUp(const RunState& state, const Member& member) {
  if (!state.suspension) return false;
  const std::chrono::milliseconds lease = state.rules->lease;
  const std::chrono::milliseconds patience = state.durable ? kReconnectTimeout : lease;
  return member.last_seen <= state.suspension->end + lease / 2 &&
         state.suspension->length + lease / kHeartbeatsPerLease >= patience;
}

}  // namespace

// A node that replaces another one takes its precedence over spares.
void MembershipStep::Enter(LinkId link, const Join& join, const Member* replaced) {
  if (!state_.rules) {
    state_.rules = join;
    state_.deadline = now_ + state_.rules->join_timeout;
  }
  ForgiveLeftOut(state_.restarts, join.host);
  RememberHost(state_, join);
  Member& member = state_.members[join.node_id];
  member.join = join;
  member.order = replaced != nullptr ? replaced->order : ++state_.joins;
  member.seated = replaced != nullptr && replaced->seated;
  Count(member.phase, 1);
  if (join.node_rank) {
    // If the running round has given it to another node, it is free in the next round.
    if (state_.places.emplace(*join.node_rank, join.node_id).second) {
      member.node_rank = join.node_rank;
    }
    state_.asked[*join.node_rank] = join.node_id;
  }
  Link(link, member);
  AddNotice(NoticeKind::kNodeJoined, &member);
  SealIfReady();
  Grow();
  TellWaiting(&member);
}

// Messages in flight when the stream broke may be lost: the node is sent the state of the run
// again, and repeats its reports of the round.
void MembershipStep::Resume(LinkId link, Member& member) {
  if (member.link) {
    EndIfOpen(member);
    state_.links.erase(*member.link);
  }
  Link(link, member);
  AddNotice(NoticeKind::kNodeReturned, &member);
  member.words_told = 0;
  if (state_.phase == RunPhase::kClosed) {
    if (state_.verdict) Send(link, Finish{*state_.verdict});
    return;
  }
  if (member.phase == MemberPhase::kRunning) Send(link, StartOf(member));
  if (member.phase == MemberPhase::kStopping)
    Send(link, Stop{state_.round, *state_.cause, IsEnding(state_)});
  SealIfReady();
  member.prepares = false;
  Grow();
  TellWaiting(&member);
}

void MembershipStep::Link(LinkId link, Member& member) {
  member.link = link;
  member.last_seen = now_;
  state_.links.emplace(link, member.join.node_id);
  const auto lease = state_.rules->lease;
  if (lease.count() > 0 && !state_.lease_due) state_.lease_due = NextLook();
  Send(link,
       // Without a lease the end of a stream is the end of its node, journal or not.
       Accepted{.lease = lease,
                .heartbeat = lease / kHeartbeatsPerLease,
                .durable = state_.durable && lease.count() > 0,
                .takes_preemption = true});
  if (state_.phase != RunPhase::kClosed) TellPreemption(member);
}

// Without a lease the streams of a run's nodes have ended with the run; otherwise a stream ends
// when the node has the verdict.
void MembershipStep::EndIfOpen(const Member& member) {
  const bool ended = state_.phase == RunPhase::kClosed && state_.rules->lease.count() == 0;
  if (member.link && !ended) End(*member.link);
}

void MembershipStep::SetPhase(Member& member, MemberPhase phase) {
  Count(member.phase, -1);
  member.phase = phase;
  Count(member.phase, 1);
}

void MembershipStep::Count(MemberPhase phase, int more) {
  if (phase == MemberPhase::kWaiting) state_.waiting += more;
  if (phase == MemberPhase::kRunning) state_.running += more;
  if (phase == MemberPhase::kStopping) state_.stopping += more;
}

// A new node with the rank of one that is away is that machine's next agent, or its replacement:
// the old one is fenced. Returns the node to remove, and why.
std::optional<std::pair<NodeId, Failure>> MembershipStep::TakePlace(const Join& join) {
  if (!join.node_rank) return std::nullopt;
  const auto asked = state_.asked.find(*join.node_rank);
  const auto place = state_.places.find(*join.node_rank);
  if (asked == state_.asked.end() && place == state_.places.end()) return std::nullopt;
  const NodeId id = asked != state_.asked.end() ? asked->second : place->second;
  Failure loss =
      LossOf(state_.members.at(id), absl::StrCat("its connection had ended, and node ", join.host,
                                                 " came with its --node-rank ", *join.node_rank));
  if (place != state_.places.end() && place->second == id) {
    state_.members.at(id).node_rank.reset();
    state_.places.erase(place);
  }
  return std::pair(id, std::move(loss));
}

MembershipStep::Loss MembershipStep::Erase(const NodeId& id, Failure reason) {
  const auto it = state_.members.find(id);
  Member& member = it->second;
  if (state_.phase != RunPhase::kClosed) AddNotice(KindOf(reason), &member).why = reason;
  Loss loss{std::move(reason), IsInRound(member)};
  loss.was_silent_before_the_break =
      member.phase == MemberPhase::kStopping &&
      member.last_seen + (member.link ? state_.rules->lease / 2 : Duration{0}) < state_.broke;
  SetKept(member, false);
  Count(member.phase, -1);
  if (member.leaving) --state_.leaving;
  if (IsInRound(member) && member.phase != MemberPhase::kStopped) {
    const int first = member.rank_first;
    AddLostNode(member.join.host, {first, first + member.join.local_world_size - 1},
                state_.outcomes);
  }
  if (member.link) state_.links.erase(*member.link);
  if (member.node_rank) {
    const auto place = state_.places.find(*member.node_rank);
    if (place != state_.places.end() && place->second == id) state_.places.erase(place);
  }
  const auto asked = state_.asked.find(member.join.node_rank.value_or(-1));
  if (asked != state_.asked.end() && asked->second == id) state_.asked.erase(asked);
  state_.time_gone += TimeOfLost(member);
  EndPreemptionOf(state_.members.extract(it).key());  // `id` may have been the member's own
  return loss;
}

// A node that is lost while its workers run reports nothing more: its ranks recover since its last
// report.
RankTime MembershipStep::TimeOfLost(const Member& member) const {
  RankTime time = member.time;
  const bool runs = member.phase == MemberPhase::kRunning || member.phase == MemberPhase::kStopping;
  const bool is_known = time.Sum().count() > 0;  // else its program reports nothing
  if (!runs || !is_known || state_.phase == RunPhase::kClosed) return time;
  const Duration silent = std::max(Duration{0}, now_ - std::max(member.time_at, state_.sealed));
  RankTime unreported;
  unreported[TimeClass::kRecovery] =
      std::min(RankTime::kMax,
               member.join.local_world_size * std::chrono::duration_cast<RankTime::Time>(silent));
  return time += unreported;
}

// Sends the node a verdict of its own: the run continues, or ends for another reason.
MembershipStep::Loss MembershipStep::LetGo(const NodeId& id, const Failure& reason) {
  const Member& member = state_.members.at(id);
  if (member.link) {
    Verdict verdict = MakeVerdict();
    verdict.cause = reason;
    if (IsFailure(reason)) verdict.exit_code = ToExitCode(reason);
    Send(*member.link, Finish{std::move(verdict)});
    End(*member.link);
  }
  return Erase(id, reason);
}

void MembershipStep::LeaveNow(const NodeId& id) {
  React(LetGo(id, Failure(*state_.members.at(id).leaving)));
}

// Lets drained nodes go, and those that have sent Leave.
void MembershipStep::LetLeaversGo() {
  std::vector<std::pair<NodeId, Failure>> going;
  for (const auto& [id, member] : state_.members) {
    if (member.leaving) {
      going.emplace_back(id, *member.leaving);
    } else if (!member.drained_by.empty()) {
      going.emplace_back(id, DrainFailure(member));
    }
  }
  for (const auto& [id, reason] : going) LetGo(id, reason);
}

// Takes all losses of one step, so that no round is started with a lost node. A run without any
// node is over, whatever restarts were left: no node waits for a replacement.
void MembershipStep::React(std::vector<Loss> losses) {
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
        TellWaiting();
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
bool MembershipStep::IsTheCause(const Loss& loss) const {
  if (loss.reason.kind != FailureKind::kNodeLost) return false;
  return (loss.was_silent_before_the_break && MayBeAftermath(*state_.cause)) ||
         (loss.was_dead_before_it_stopped && TakesThePlaceOf(loss.reason, *state_.cause));
}

void MembershipStep::RemoveMember(const NodeId& id, Failure reason) {
  React(Erase(id, std::move(reason)));
}

// A service that runs looks at the leases this often, whether or not one may be over: a late look
// shows that it was suspended, also for less than a lease.
TimePoint MembershipStep::NextLook() const {
  return now_ + state_.rules->lease / kHeartbeatsPerLease;
}

// A look that comes so late means that the service itself was suspended (a debugger, a migrating
// virtual machine) and received nothing meanwhile. All members get half a lease.
void MembershipStep::ForgiveIfStopped() {
  const auto lease = state_.rules->lease;
  const Duration late = now_ - *state_.lease_due;
  if (late < lease / kHeartbeatsPerLease) return;
  // Suspensions in quick succession are one: a machine that wakes up is slow.
  const bool again = state_.suspension && now_ - state_.suspension->end < lease;
  const auto before = again ? state_.suspension->length : std::chrono::milliseconds(0);
  state_.suspension =
      Suspension{now_, before + std::chrono::duration_cast<std::chrono::milliseconds>(late)};
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    member.last_seen = std::max(member.last_seen, now_ - LeaseOf(state_, member) / 2);
  }
}

// A node that gave the service up while that was suspended is not to blame.
Failure MembershipStep::LossOfSilent(const Member& member) const {
  if (!MayHaveGivenUp(state_, member)) return LossOf(member, LostWords(state_, member));
  const auto host = std::find_if(state_.members.begin(), state_.members.end(),
                                 [](const auto& entry) { return entry.second.join.hosts_service; });
  const bool is_hosted = host != state_.members.end();
  return LossOf(is_hosted ? host->second : member, SuspendedWords(state_, member, is_hosted));
}

void MembershipStep::EndLeases() {
  if (!state_.lease_due || now_ < *state_.lease_due) return;
  ForgiveIfStopped();
  std::vector<std::pair<TimePoint, NodeId>> over;
  for (const auto& [id, member] : state_.members) {
    if (member.last_seen + LeaseOf(state_, member) <= now_) over.emplace_back(member.last_seen, id);
  }
  // The node that fell silent first may be the cause of the others' silence.
  std::sort(over.begin(), over.end());
  std::vector<Loss> losses;
  for (const auto& [last_seen, id] : over) {
    const Member& member = state_.members.at(id);
    if (state_.phase == RunPhase::kClosed) {
      EndIfOpen(member);
    } else if (member.link) {
      Refuse(*member.link, FencedForSilence(state_, member));
    }
    losses.push_back(Erase(id, LossOfSilent(member)));
  }
  React(std::move(losses));
  state_.lease_due.reset();
  for (const auto& entry : state_.members) {
    const TimePoint due = entry.second.last_seen + LeaseOf(state_, entry.second);
    state_.lease_due = std::min(state_.lease_due.value_or(NextLook()), due);
  }
}

}  // namespace ddprun
