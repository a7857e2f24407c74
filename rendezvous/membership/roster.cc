// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/roster.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

// The notice for a node that is no longer a member.
NoticeKind KindOf(const Failure& why) {
  if (why.kind == FailureKind::kNodeDrained) return NoticeKind::kNodeDrained;
  return why.kind == FailureKind::kNodeInterrupted ? NoticeKind::kNodeLeft : NoticeKind::kNodeLost;
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

Member& Roster::Add(LinkId link, const Join& join, const Member* replaced) {
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
  Enlist(link, member);
  step_.AddNotice(NoticeKind::kNodeJoined, &member);
  return member;
}

void Roster::Link(LinkId link, Member& member) {
  if (member.link) {
    EndIfOpen(member);
    state_.links.erase(*member.link);
  }
  Enlist(link, member);
  step_.AddNotice(NoticeKind::kNodeReturned, &member);
  member.words_told = 0;
}

void Roster::Enlist(LinkId link, Member& member) {
  member.link = link;
  member.last_seen = now_;
  state_.links.emplace(link, member.join.node_id);
  const auto lease = state_.rules->lease;
  if (lease.count() > 0 && !state_.lease_due) state_.lease_due = NextLook();
  step_.Send(link,
             // Without a lease the end of a stream is the end of its node, journal or not.
             Accepted{.lease = lease,
                      .heartbeat = lease / kHeartbeatsPerLease,
                      .durable = state_.durable && lease.count() > 0,
                      .takes_preemption = true,
                      .plans_preemption = true});
  if (state_.phase != RunPhase::kClosed) TellPreemption(step_, member);
}

void Roster::EndIfOpen(const Member& member) {
  const bool ended = state_.phase == RunPhase::kClosed && state_.rules->lease.count() == 0;
  if (member.link && !ended) step_.End(*member.link);
}

void Roster::SetPhase(Member& member, MemberPhase phase) {
  Count(member.phase, -1);
  member.phase = phase;
  Count(member.phase, 1);
}

void Roster::Count(MemberPhase phase, int more) {
  if (phase == MemberPhase::kWaiting) state_.waiting += more;
  if (phase == MemberPhase::kRunning) state_.running += more;
  if (phase == MemberPhase::kStopping) state_.stopping += more;
}

void Roster::SetKept(Member& member, bool can_be_kept) {
  if (IsInRound(member)) state_.kept += can_be_kept - member.can_be_kept;
  member.can_be_kept = can_be_kept;
}

std::optional<std::pair<NodeId, Failure>> Roster::TakePlace(const Join& join) {
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

Loss Roster::Erase(const NodeId& id, Failure reason) {
  const auto it = state_.members.find(id);
  Member& member = it->second;
  if (state_.phase != RunPhase::kClosed) step_.AddNotice(KindOf(reason), &member).why = reason;
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
  EndPreemptionOf(step_, state_.members.extract(it).key());  // `id` may have been the member's own
  return loss;
}

// A node that is lost while its workers run reports nothing more: its ranks recover since its last
// report.
RankTime Roster::TimeOfLost(const Member& member) const {
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

Loss Roster::LetGo(const NodeId& id, const Failure& reason) {
  const Member& member = state_.members.at(id);
  if (member.link) {
    Verdict verdict = MakeVerdict(state_, now_);
    verdict.cause = reason;
    if (IsFailure(reason)) verdict.exit_code = ToExitCode(reason);
    step_.Send(*member.link, Finish{std::move(verdict)});
    step_.End(*member.link);
  }
  return Erase(id, reason);
}

// ---- Leases

// A service that runs looks at the leases this often, whether or not one may be over: a late look
// shows that it was suspended, also for less than a lease.
TimePoint Roster::NextLook() const { return now_ + state_.rules->lease / kHeartbeatsPerLease; }

// A look that comes so late means that the service itself was suspended (a debugger, a migrating
// virtual machine) and received nothing meanwhile. All members get half a lease.
void Roster::ForgiveIfStopped() {
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
Failure Roster::LossOfSilent(const Member& member) const {
  if (!MayHaveGivenUp(state_, member)) return LossOf(member, LostWords(state_, member));
  const auto host = std::find_if(state_.members.begin(), state_.members.end(),
                                 [](const auto& entry) { return entry.second.join.hosts_service; });
  const bool is_hosted = host != state_.members.end();
  return LossOf(is_hosted ? host->second : member, SuspendedWords(state_, member, is_hosted));
}

std::vector<Loss> Roster::EndLeases() {
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
      step_.Refuse(*member.link, FencedForSilence(state_, member));
    }
    losses.push_back(Erase(id, LossOfSilent(member)));
  }
  return losses;
}

void Roster::PlanNextLook() {
  state_.lease_due.reset();
  for (const auto& entry : state_.members) {
    const TimePoint due = entry.second.last_seen + LeaseOf(state_, entry.second);
    state_.lease_due = std::min(state_.lease_due.value_or(NextLook()), due);
  }
}

}  // namespace ddprun
